"""Random programs of message passing on random graphs: outputs and all gradients against DGL on the whole graph.

``SAR_RANDOM_PROGRAMS=20000`` runs so many, new ones each time; without it some hundreds, the same ones each time.
"""

from __future__ import annotations

import os
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.parity import cases_random, random_programs
from tests.parity.random_graphs import Case
from tests.support.graphs import close
from tests.support.pool import CaseError, Pool
from tests.support.sessions import Workers

MANY = int(os.environ.get("SAR_RANDOM_PROGRAMS", "0"))
SHARES = {(1, "shm"): 0.15, (2, "shm"): 0.25, (2, "tcp"): 0.1, (3, "shm"): 0.25, (4, "shm"): 0.25}
if MANY:
    SHARES[8, "shm"] = 0.1
COUNTS = [MANY] if MANY else [180, pytest.param(540, marks=pytest.mark.full)]
BATCH = 18
"""Programs of an example, which go to the workers in one message."""


ALONE = int(dgl.__version__.split(".")[0]) >= 2
"""Whether this DGL sends gradients of max and min to other edges than those that won, where a type has one node and
features 16 columns or more. So the whole graph gets a second node of such a type, without edges."""


def nodes_of(count: int) -> int:
    """Nodes of the whole graph for so many of a program's."""
    return 2 if ALONE and count == 1 else count


class Whole:
    """DGL on the whole graph, as the interpreter wants it."""

    function = dgl.function

    def __init__(self, case: Case) -> None:
        ends = {t: (torch.from_numpy(s), torch.from_numpy(d)) for t, (s, d) in zip(case.triples, case.ends)}
        self.graph = dgl.heterograph(ends, num_nodes_dict=dict(zip(case.kinds, map(nodes_of, case.spec["counts"]))))
        self.triples = case.triples
        self.case = case

    def known(self, step: Any) -> torch.Tensor | None:
        """Without edges DGL runs no Python function, and gives the first node the gradient of a maximum."""
        if "rel" not in step or self.case.spec["num_edges"][step["rel"]]:
            return None
        spec, out = self.case.spec, step["out"]
        shape = (*map(nodes_of, self.case.length(spec["places"][out])), *spec["shapes"][out])
        return torch.zeros(shape, dtype=getattr(torch, spec["dtype"]))

    @staticmethod
    def softmax(graph: Any, value: torch.Tensor, norm_by: str) -> torch.Tensor:
        return dgl.ops.edge_softmax(graph, value, norm_by=norm_by)

    def blocks(self, step: Any, h: torch.Tensor) -> torch.Tensor:
        """The same layers on the whole graph, of which some rows are taken."""
        function = self.function
        for _ in range(step["layers"]):
            with self.graph.local_scope():
                self.graph.ndata["h"] = h
                message = function.u_add_v("h", "h", "m") if step["keep"] else function.copy_u("h", "m")
                self.graph.update_all(message, getattr(function, step["reduce"])("m", "o"))
                h = torch.tanh(self.graph.ndata["o"])
        taken = torch.zeros(len(h), dtype=torch.bool)
        taken[step["seeds"]] = True
        return torch.where(taken.view(-1, *[1] * (h.dim() - 1)), h, torch.zeros_like(h))

    def evaluate(self, rel: int, tree: Any, reduce: str | None, env: dict[str, Any]) -> torch.Tensor:
        """The expression as an edge tensor, which DGL reduces."""
        triple = self.triples[rel]
        src, dst = self.graph.edges(etype=triple)
        value = self._value(tree, env, triple, src.long(), dst.long())
        if reduce is None:
            return value
        with self.graph.local_scope():
            self.graph.edges[triple].data["m"] = value
            self.graph.update_all(dgl.function.copy_e("m", "m"), getattr(dgl.function, reduce)("m", "o"), etype=triple)
            return self.graph.nodes[triple[2]].data["o"]

    def _value(self, tree: Any, env: dict[str, Any], triple: Any, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        op, *rest = tree
        below = [self._value(t, env, triple, src, dst) for t in rest if isinstance(t, list)]
        if op == "load":
            column = env[rest[1]]
            return {"u": lambda: column[src], "v": lambda: column[dst], "e": lambda: column}[rest[0]]()
        if op == "param":
            column = env[rest[0]]
            return column.expand(len(src), *column.shape)
        if op == "binary":
            dims = max(t.dim() for t in below)
            a, b = (t.reshape(len(src), *[1] * (dims - t.dim()), *t.shape[1:]) for t in below)
            if rest[0] == "dot":
                return (a * b).sum(-1, keepdim=True)
            return {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}[rest[0]]
        if op == "unary":
            return self._unary(rest[0], below[0], rest[2])
        if op == "total":
            return below[0].sum(rest[1] + 1, keepdim=rest[2])
        assert op == "softmax"
        flat = below[0].reshape(len(src), -1)
        return dgl.ops.edge_softmax(self.graph[triple], flat).reshape(below[0].shape)

    @staticmethod
    def _unary(op: str, a: torch.Tensor, alpha: float) -> torch.Tensor:
        nn = torch.nn.functional
        if op in ("leaky_relu", "elu"):
            return getattr(nn, op)(a, alpha)
        simple = {"scale": a * alpha, "shift": a + alpha, "rsub": alpha - a}
        return simple[op] if op in simple else getattr(nn if op == "softplus" else torch, op)(a)


def expected(case: Case) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Outputs, gradients of leaves, and the buffer."""
    env = {
        name: torch.from_numpy(x.copy()).requires_grad_(any(case.wanted(name, r) for r in range(case.world)))
        for name, x in case.leaves.items()
    }
    given = dict(env)
    for name, leaf in given.items():
        if case.spec["places"][name][0] == "n":
            env[name] = torch.cat([leaf, leaf.new_ones(nodes_of(len(leaf)) - len(leaf), *leaf.shape[1:])])
    env["buffer"] = torch.zeros(cases_random.BUFFER, dtype=torch.float64)
    cases_random.interpret(Whole(case), {"steps": case.spec["steps"]}, env)
    outputs = {name: env[name][: len(g)] for name, g in case.grads.items()}
    loss = sum((outputs[name] * torch.from_numpy(g)).sum() for name, g in case.grads.items())
    if loss.requires_grad:
        loss.backward()
    zero = {name: torch.zeros_like(t) if t.grad is None else t.grad for name, t in given.items()}
    made = {n: out.detach().numpy() for n, out in outputs.items()}
    return made, {n: g.numpy() for n, g in zero.items()}, env["buffer"].numpy()


def check(case: Case, results: list[dict[str, Any]]) -> None:
    """Results of all ranks against DGL's. Rounding adds up along a program, so the bounds are loose."""
    outputs, gradients, buffer = expected(case)
    loose = 3000.0 if case.spec["dtype"] == "float64" else 30.0
    close(sum(r["buffer"] for r in results), buffer, "buffer", 1e8 if case.spec["dtype"] == "float32" else loose)
    for rank, result in enumerate(results):
        for name, whole in outputs.items():
            close(result["out"][name], whole[case.rows(case.spec["places"][name], rank)], f"{name}, rank {rank}", loose)
    for name, whole in gradients.items():
        place = case.spec["places"][name]
        if place == "p":
            parts = [r["grad"][name] for r in results if r["grad"][name] is not None]
            close(sum(parts, np.zeros_like(whole)), whole, f"gradient of {name}", loose)
            continue
        for rank, result in enumerate(results):
            got, mine = result["grad"][name], whole[case.rows(place, rank)]
            if not case.wanted(name, rank):
                assert got is None
            else:
                close(np.zeros_like(mine) if got is None else got, mine, f"gradient of {name}, rank {rank}", loose)


@pytest.mark.parametrize("programs", COUNTS)
@pytest.mark.parametrize("session", SHARES, ids=lambda s: f"{s[1]}{s[0]}")
def test_random_programs(pool: Pool, session: tuple[int, str], programs: int) -> None:
    world, transport = session
    workers = Workers(pool, world, transport)
    done = 0
    wanted = int(programs * SHARES[session])

    @settings(
        max_examples=max(1, wanted // BATCH),
        deadline=None,
        database=None,
        derandomize=not MANY,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(random_programs.programs(world), min_size=BATCH, max_size=BATCH))
    def run(specs: list[dict[str, Any]]) -> None:
        nonlocal done
        cases = [Case(spec, world) for spec in specs]
        try:
            results = workers.run(
                cases_random.programs, [{"batch": [case.arguments(rank) for case in cases]} for rank in range(world)]
            )
        except CaseError as error:
            raise AssertionError(f"{error}\nprograms: {specs}") from None
        for number, case in enumerate(cases):
            try:
                check(case, [result[number] for result in results])
            except AssertionError as error:
                raise AssertionError(f"{error}\nprogram: {case.spec}") from None
        done += len(cases)

    run()
    print(f"{done} programs")
