"""Edge expressions on workers and on the whole graph: programs, the numbers they read, and the comparison of both."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import dgl
import numpy as np
import torch

from tests.parity import cases_expression
from tests.parity.cases_expression import Program
from tests.support.graphs import Graph, close
from tests.support.sessions import Workers

U, V, E, P = "u", "v", "e", "p"


class Leaf(NamedTuple):
    """A tensor of a program: its side and its feature shape."""

    side: str
    shape: Tuple[int, ...]


def draw(graph: Graph, leaves: Sequence[Leaf], dtype: str, seed: int = 1, ties: bool = False) -> List[np.ndarray]:
    """Numbers for the tensors; with ``ties`` few different ones."""
    rng = np.random.default_rng(seed)
    rows = {"u": graph.num_nodes, "v": graph.num_nodes, "e": len(graph.src)}
    shapes = [((rows[x.side],) if x.side in rows else ()) + x.shape for x in leaves]
    if ties:
        return [rng.integers(-1, 2, s).astype(dtype) for s in shapes]
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def value(graph: Any, program: Program, tensors: List[torch.Tensor]) -> torch.Tensor:
    """The expression on the whole graph, a row per edge."""
    op, *rest = program
    src, dst = graph.edges()
    if op == "load":
        x = tensors[rest[1]]
        return x[src] if rest[0] == "u" else x[dst] if rest[0] == "v" else x
    if op == "param":
        return tensors[rest[0]].unsqueeze(0).expand(graph.num_edges(), *tensors[rest[0]].shape)
    a = value(graph, rest[0], tensors)
    if op in ("add", "sub", "mul", "div", "dot"):
        b = value(graph, rest[1], tensors)
        dims = max(a.dim(), b.dim())
        a, b = (x.reshape(len(x), *(1,) * (dims - x.dim()), *x.shape[1:]) for x in (a, b))
        if op == "dot":
            return (a * b).sum(-1, keepdim=True)
        result: torch.Tensor = getattr(torch, op)(a, b)
        return result
    alpha = rest[1] if len(rest) > 1 else None
    functions = {
        "total": lambda: a.sum([d + 1 for d in rest[1]], keepdim=len(rest) > 2 and rest[2]),
        "reshape": lambda: a.reshape(len(a), *rest[1]),
        "softmax": lambda: dgl.ops.edge_softmax(graph, a.unsqueeze(1)).squeeze(1) if len(a) else a * 1,
        "leaky_relu": lambda: torch.nn.functional.leaky_relu(a, alpha),
        "elu": lambda: torch.nn.functional.elu(a, alpha),
        "softplus": lambda: torch.nn.functional.softplus(a),
        "scale": lambda: a * alpha,
        "shift": lambda: a + alpha,
        "rsub": lambda: alpha - a,
        "pow": lambda: a**alpha,
        "clamp_min": lambda: a.clamp(min=alpha),
        "clamp_max": lambda: a.clamp(max=alpha),
        "clamp_min_open": lambda: a.clamp(min=alpha),
        "clamp_max_open": lambda: a.clamp(max=alpha),
    }
    made: torch.Tensor = functions[op]() if op in functions else getattr(torch, op)(a)
    return made


def first_of_equals(messages: torch.Tensor, reduce: str | None) -> torch.Tensor:
    """What DGL is to reduce: for max and min in float64, in which it picks the first of equal messages on every
    processor (in float32, where libxsmm has AVX-512, the last)."""
    return messages.double() if reduce in ("max", "min") else messages


def oracle(graph: Graph, program: Program, reduce: Optional[str], tensors: List[np.ndarray]) -> Dict[str, Any]:
    """Plain DGL and torch."""
    whole = graph.of_dgl()
    leaves = [torch.from_numpy(t.copy()).requires_grad_() for t in tensors]
    message = value(whole, program, leaves)
    out = message
    if reduce is not None and out.numel() == 0 and len(graph.src):  # no columns, which DGL does not take
        out = out.new_zeros(graph.num_nodes, *message.shape[1:])
    elif reduce is not None:
        # Where a graph has one node, and 16 columns or more, DGL 2.1 sends gradients of max and min to other edges than
        # those that won: so it gets one node more.
        whole = dgl.graph(whole.edges(), num_nodes=max(2, graph.num_nodes))
        rows = message.reshape(message.shape[0], int(np.prod(message.shape[1:])))
        whole.edata["m"] = first_of_equals(rows, reduce)
        whole.update_all(dgl.function.copy_e("m", "m"), getattr(dgl.function, reduce)("m", "out"))
        out = whole.ndata["out"][: graph.num_nodes].reshape(graph.num_nodes, *message.shape[1:]).to(message.dtype)
    grad = np.random.default_rng(7).standard_normal(tuple(out.shape)).astype(tensors[0].dtype)
    if out.requires_grad and len(graph.src):
        out.backward(torch.from_numpy(grad))
    grads = [np.zeros_like(t) if x.grad is None else x.grad.numpy() for x, t in zip(leaves, tensors)]
    return {"out": out.detach().numpy(), "grad": grad, "grads": grads}


def compare(
    workers: Workers,
    graph: Graph,
    leaves: Sequence[Leaf],
    program: Program,
    reduce: Optional[str],
    dtype: str = "float64",
    needs: Optional[Sequence[bool]] = None,
    tensors: Optional[List[np.ndarray]] = None,
    loose: float = 4.0,
    masked: Optional[Program] = None,
    **options: Any,
) -> None:
    """Runs on all ranks and compares everything. The oracle runs ``masked`` where it is given."""
    tensors = draw(graph, leaves, dtype) if tensors is None else tensors
    expected = oracle(graph, masked or program, reduce, tensors)
    wanted = [True] * len(leaves) if needs is None else list(needs)
    pick = [{"u": graph.rows, "v": graph.rows, "e": graph.edges, "p": lambda _: ...}[x.side] for x in leaves]
    result_of = graph.edges if reduce is None else graph.rows
    keys = 3 * np.arange(len(graph.src), dtype=np.int64) + 1  # what a partition calls orig_id
    ranks = range(graph.world)
    own = {"tensors": [[t[p(r)] for t, p in zip(tensors, pick)] for r in ranks]}
    own["grad"] = [expected["grad"][result_of(rank)] for rank in ranks]
    arguments = graph.shares({"keys": keys}, own)
    results = workers.run(
        cases_expression.expression, arguments, program=program, reduce=reduce, needs=wanted, **options
    )
    for rank, result in enumerate(results):
        close(result["out"], expected["out"][result_of(rank)], f"output of rank {rank}", loose)
    for i, leaf in enumerate(leaves):
        if not wanted[i]:
            assert all(r["grads"][i] is None for r in results)
        elif leaf.side == "p":  # every rank has the part of its own edges
            total = sum(r["grads"][i].astype(np.float64) for r in results)
            close(total.astype(dtype), expected["grads"][i], "gradient of the parameter", 10 * loose)
        else:
            for rank, result in enumerate(results):
                want = expected["grads"][i][pick[i](rank)]
                close(result["grads"][i], want, f"gradient of tensor {i} ({leaf.side}), rank {rank}", loose)


def mask(workers: Workers, graph: Graph, shape: Tuple[int, ...], p: float, seed: int) -> np.ndarray:
    """What dropout multiplies with, as one worker draws it."""
    whole = Graph(graph.num_nodes, graph.src, graph.dst, np.array([0, graph.num_nodes]))
    ones = np.ones((len(graph.src), *shape))
    keys = 3 * np.arange(len(graph.src), dtype=np.int64) + 1
    alone = Workers(workers.pool, 1, "shm")
    (result,) = alone.run(
        cases_expression.expression,
        [{"part": whole.part(0), "tensors": [ones], "grad": ones, "keys": keys}],
        program=["dropout", ["load", E, 0], p, seed],
        reduce=None,
        needs=[False],
    )
    drawn: np.ndarray = result["out"]
    return drawn
