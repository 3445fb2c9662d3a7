"""bfloat16 against plain torch and DGL in float64: results rounded once, for any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_bfloat16 as cases
from tests.parity.cases_expression import Program
from tests.parity.expressions import E, Leaf, P, U, V, draw, oracle
from tests.parity.test_expression import ATTENTION
from tests.support.graphs import Graph, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

HALF, SINGLE = "bfloat16", "float32"
LOADED: dict[str, Program] = {side: ["load", side, n] for n, side in enumerate((U, V, E))}


@pytest.fixture(scope="session", params=[1, 2, 3])
def some(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    return Workers(pool, request.param, "shm")


def half(array: np.ndarray) -> np.ndarray:
    """The nearest numbers of bfloat16, as float32."""
    rounded: np.ndarray = torch.from_numpy(np.asarray(array, np.float32)).bfloat16().float().numpy()
    return rounded


def check(found: Any, exact: np.ndarray, dtype: str, what: str, ulps: float = 1.0, floor: float = 1e-5) -> None:
    """Holds numbers against exact ones: they are those rounded once, or a neighbour where float32 sums differ.

    :param floor: what may be missing, of the largest number there is: of sums of numbers that cancel out
    """
    kind, actual = found
    assert kind == dtype, f"{what} is {kind}"
    assert actual.shape == exact.shape, what
    if not exact.size:
        return
    wanted = half(exact).astype(np.float64) if dtype == HALF else exact
    digits = 8 if dtype == HALF else 17  # float32: as sums of other orders have them
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(wanted), 1e-30))) - digits + 1)
    error = np.abs(actual - wanted) - ulps * unit - floor * max(1.0, np.abs(wanted).max())
    assert error.max() <= 0, f"{what}: {error.max()} too far, at {np.unravel_index(error.argmax(), error.shape)}"


class Case:
    """An expression of tensors of some dtypes, and what plain DGL has for it."""

    def __init__(
        self, graph: Graph, leaves: list[Leaf], program: Program, reduce: str | None, dtypes: list[str], **more: Any
    ) -> None:
        self.graph, self.leaves, self.dtypes, self.reduce = graph, leaves, dtypes, reduce
        tensors = draw(graph, leaves, "float32", seed=len(graph.src))
        self.tensors = [half(t) if d == HALF else t for t, d in zip(tensors, dtypes)]
        self.dtype = HALF if set(dtypes) == {HALF} else SINGLE
        self.program, self.more = program, more
        self.expected = oracle(graph, program, reduce, [t.astype(np.float64) for t in self.tensors])

    def rows(self, side: str, rank: int) -> Any:
        return {U: self.graph.rows, V: self.graph.rows, E: self.graph.edges, P: lambda _: ...}[side](rank)

    def job(self, rank: int) -> cases.Job:
        own = [t[self.rows(leaf.side, rank)] for t, leaf in zip(self.tensors, self.leaves)]
        grad = self.expected["grad"][self.rows(V if self.reduce else E, rank)]
        return cases.Job(self.program, self.reduce, own, self.dtypes, half(grad), **self.more)

    def check(self, found: list[dict[str, Any]]) -> None:
        name = f"{self.reduce} of {self.program} ({', '.join(self.dtypes)})"
        for rank, one in enumerate(found):
            own = self.rows(V if self.reduce else E, rank)
            check(one["out"], self.expected["out"][own], self.dtype, f"{name}, rank {rank}")
        for n, (leaf, dtype) in enumerate(zip(self.leaves, self.dtypes)):
            exact, what = self.expected["grads"][n], f"gradient {n} of {name}"
            each = [one["grads"][n] for one in found]
            if leaf.side == P:
                total = sum(numbers for _, numbers in each)
                check((each[0][0], total), exact, dtype, what, ulps=len(each), floor=0.1)  # sums over all edges
                continue
            for rank, one in enumerate(each):
                # the gradient that comes in and the result that is saved have been rounded
                check(one, exact[self.rows(leaf.side, rank)], dtype, what, ulps=2, floor=0.02)


def forms(graph: Graph, few: bool) -> list[Case]:
    """Sums of every side and operation, of one storage type and of two, and attention."""
    found = []
    for n, reduce in enumerate(("sum", "mean", "max", "min")):
        width = (47,) if n % 2 else (1,)
        found.append(Case(graph, [Leaf(U, width)], LOADED[U], reduce, [HALF], strided=n > 1))
        weighted: Program = ["mul", ["load", U, 0], ["load", E, 1]]
        for e in (HALF, SINGLE):
            found.append(Case(graph, [Leaf(U, (4, 3)), Leaf(E, (4, 1))], weighted, reduce, [HALF, e]))
    for n, op in enumerate(("add", "sub", "mul", "dot")):
        both: Program = [op, ["load", U, 0], ["load", V, 1]]
        dtypes = [HALF, (HALF, SINGLE)[n % 2]]
        found.append(Case(graph, [Leaf(U, (3, 4)), Leaf(V, (3, 4))], both, "sum" if n % 2 else None, dtypes))
    for n, (leaves, program) in enumerate(ATTENTION.values()):
        found.append(Case(graph, leaves, program, "sum", [HALF] * len(leaves), strided=bool(n % 2)))
    leaves, program = ATTENTION["gat"]  # under autocast, scores are float32
    found.append(Case(graph, leaves, program, "sum", [SINGLE, SINGLE, HALF]))
    return found[::3] if few else found


@pytest.mark.parametrize("kind", ["random", "empty_worker", "no_edges", "one_node"])
def test_expressions(some: Workers, kind: str) -> None:
    graph = make(kind, some.world, seed=17)
    chosen = forms(graph, kind in ("no_edges", "one_node"))
    given = {"jobs": [[tuple(case.job(rank)) for case in chosen] for rank in range(some.world)]}
    found = some.run(cases.expressions, graph.shares(ranks=given))
    for n, case in enumerate(chosen):
        case.check([one[n] for one in found])
