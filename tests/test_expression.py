"""Edge expressions against plain torch and DGL on the whole graph: values and all gradients, element by element."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import pytest
import torch

from cases_expression import Program
from conftest import SESSIONS, Workers
from graphs import KINDS, Graph, close, make
from pool import Pool

dgl = pytest.importorskip("dgl")

QUICK = [s for s in SESSIONS if s in ((1, "shm"), (2, "shm"), (4, "shm"))]


@pytest.fixture(scope="session", params=QUICK, ids=lambda s: f"{s[1]}{s[0]}")
def few(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    return Workers(pool, *request.param)


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
    }
    made: torch.Tensor = functions[op]() if op in functions else getattr(torch, op)(a)
    return made


def oracle(
    graph: Graph, program: Program, reduce: Optional[str], tensors: List[np.ndarray]
) -> Dict[str, Any]:
    """Plain DGL and torch."""
    whole = dgl.graph((torch.from_numpy(graph.src), torch.from_numpy(graph.dst)), num_nodes=graph.num_nodes)
    leaves = [torch.from_numpy(t.copy()).requires_grad_() for t in tensors]
    message = value(whole, program, leaves)
    out = message
    if reduce is not None and out.numel() == 0 and len(graph.src):  # no columns, which DGL does not take
        out = out.new_zeros(graph.num_nodes, *message.shape[1:])
    elif reduce is not None:
        # Where a graph has one node, and 16 columns or more, DGL 2.1 sends gradients of max and min to other edges than
        # those that won: so it gets one node more.
        whole = dgl.graph(whole.edges(), num_nodes=max(2, graph.num_nodes))
        whole.edata["m"] = message.reshape(message.shape[0], int(np.prod(message.shape[1:])))
        whole.update_all(dgl.function.copy_e("m", "m"), getattr(dgl.function, reduce)("m", "out"))
        out = whole.ndata["out"][: graph.num_nodes].reshape(graph.num_nodes, *message.shape[1:])
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
    arguments = [
        {
            "part": graph.part(rank),
            "tensors": [t[p(rank)] for t, p in zip(tensors, pick)],
            "grad": expected["grad"][result_of(rank)],
            "keys": keys[graph.edges(rank)],
        }
        for rank in range(graph.world)
    ]
    results = workers.run(
        "cases_expression:expression", arguments, program=program, reduce=reduce, needs=wanted, **options
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


U, V, E, P = "u", "v", "e", "p"
SIDES = [(a, b) for a in (U, V, E, P) for b in (U, V, E) if a != b]
SHAPES = {
    "same": ((3, 4), (3, 4)),
    "heads": ((3, 4), (3, 1)),
    "scalar": ((5,), ()),
    "trailing": ((3, 4), (4,)),
    "both": ((3, 1), (1, 4)),
    "wide": ((2, 47), (2, 47)),
}


def leaf(side: str, i: int) -> Program:
    return [P_LOAD, i] if side == P else ["load", side, i]


P_LOAD = "param"


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", None], ids=str)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "dot"])
def test_binary(few: Workers, op: str, reduce: Optional[str]) -> None:
    """Every operation of every two sides, with every way to broadcast in turn."""
    for n, (a, b) in enumerate(SIDES):
        kind = KINDS[n % len(KINDS)]
        name = list(SHAPES)[(n + few.world) % len(SHAPES)]
        if op == "dot" and name in ("heads", "scalar", "both"):
            name = "trailing"
        dtype = "float32" if n % 3 == 0 else "float64"
        graph = make(kind, few.world, seed=n)
        leaves = [Leaf(a, SHAPES[name][0]), Leaf(b, SHAPES[name][1])]
        tensors = draw(graph, leaves, dtype, seed=n)
        if op == "div":  # stay away from 0
            tensors[1] = np.copysign(np.abs(tensors[1]) + 0.5, tensors[1]).astype(dtype)
        compare(few, graph, leaves, [op, leaf(a, 0), leaf(b, 1)], reduce, dtype, tensors=tensors)


UNARY = [
    ["neg"], ["relu"], ["leaky_relu", 0.2], ["elu", 1.3], ["exp"], ["log"], ["sqrt"], ["sigmoid"], ["tanh"],
    ["softplus"], ["abs"], ["reciprocal"], ["scale", -1.5], ["shift", 0.25], ["rsub", 2.0], ["pow", 3.0], ["pow", 0.0],
    ["clamp_min", 0.3], ["clamp_max", 0.3],
]  # fmt: skip


@pytest.mark.parametrize("op", UNARY, ids=lambda op: f"{op[0]}{op[1] if len(op) > 1 else ''}")
def test_unary(two: Workers, op: List[Any]) -> None:
    graph = make("random", 2, seed=3)
    leaves = [Leaf(U, (2, 3)), Leaf(V, (2, 1))]
    for dtype in ("float32", "float64"):
        tensors = draw(graph, leaves, dtype)
        if op[0] in ("log", "sqrt", "reciprocal"):
            tensors = [np.abs(t) + 0.5 for t in tensors]
        program = [op[0], ["add", ["load", U, 0], ["load", V, 1]], *op[1:]]
        compare(two, graph, leaves, program, "sum", dtype, tensors=tensors, loose=10.0)


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_ties(few: Workers, kind: str, dtype: str, reduce: str) -> None:
    """Few different values and parallel edges: the gradient goes to the edge that DGL picks."""
    graph = make(kind, few.world, seed=11)
    leaves = [Leaf(U, (5,)), Leaf(E, (5,))]
    compare(
        few, graph, leaves, ["mul", ["load", U, 0], ["load", E, 1]], reduce, dtype,
        tensors=draw(graph, leaves, dtype, ties=True),
    )  # fmt: skip


ATTENTION: Dict[str, Tuple[List[Leaf], Program]] = {
    "gat": (
        [Leaf(U, (4, 1)), Leaf(V, (4, 1)), Leaf(U, (4, 8))],
        ["mul", ["load", U, 2], ["softmax", ["leaky_relu", ["add", ["load", U, 0], ["load", V, 1]], 0.2]]],
    ),
    "gatv2": (
        [Leaf(U, (2, 9)), Leaf(V, (2, 9)), Leaf(P, (2, 9))],
        [
            "mul",
            ["load", U, 0],
            [
                "softmax",
                [
                    "total",
                    ["mul", ["leaky_relu", ["add", ["load", U, 0], ["load", V, 1]], 0.2], ["param", 2]],
                    [1],
                    True,
                ],
            ],
        ],
    ),
    "dot product": (
        [Leaf(U, (3, 5)), Leaf(V, (3, 5))],
        ["mul", ["load", U, 0], ["softmax", ["scale", ["dot", ["load", U, 0], ["load", V, 1]], 0.4]]],
    ),
    "cosine": (
        [Leaf(U, (7,)), Leaf(V, (7,)), Leaf(P, ())],
        ["mul", ["load", U, 0], ["softmax", ["mul", ["param", 2], ["dot", ["load", U, 0], ["load", V, 1]]]]],
    ),
    "with edges": (
        [Leaf(U, (2, 3)), Leaf(E, (2, 1)), Leaf(V, (2, 1))],
        [
            "scale",
            ["mul", ["softmax", ["add", ["load", E, 1], ["load", V, 2]]], ["add", ["load", U, 0], ["load", E, 1]]],
            0.5,
        ],
    ),
    "of vectors": (
        [Leaf(U, (6,)), Leaf(V, (6,))],
        ["mul", ["load", U, 0], ["softmax", ["sub", ["load", U, 0], ["load", V, 1]]]],
    ),
    "two sweeps": (
        [Leaf(U, (3, 1)), Leaf(V, (3, 1)), Leaf(U, (3, 4))],
        ["tanh", ["mul", ["load", U, 2], ["softmax", ["add", ["load", U, 0], ["load", V, 1]]]]],
    ),
    "two softmaxes": (
        [Leaf(U, (3, 1)), Leaf(V, (3, 1)), Leaf(U, (3, 4))],
        [
            "mul",
            ["mul", ["load", U, 2], ["softmax", ["load", U, 0]]],
            ["softmax", ["add", ["load", V, 1], ["load", U, 0]]],
        ],
    ),
    "of a softmax": (
        [Leaf(U, (3, 1)), Leaf(V, (3, 1)), Leaf(U, (3, 4))],
        ["mul", ["load", U, 2], ["softmax", ["mul", ["load", V, 1], ["softmax", ["load", U, 0]]]]],
    ),
    "weights alone": ([Leaf(U, (2,)), Leaf(V, (2,))], ["softmax", ["mul", ["load", U, 0], ["load", V, 1]]]),
}


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", None], ids=str)
@pytest.mark.parametrize("form", ATTENTION)
def test_attention(few: Workers, form: str, reduce: Optional[str]) -> None:
    leaves, program = ATTENTION[form]
    for n, kind in enumerate(KINDS if reduce == "sum" else ("random", "empty_worker")):
        graph = make(kind, few.world, seed=21)
        compare(few, graph, leaves, program, reduce, "float64" if n % 2 else "float32", loose=10.0, twice=True)


@pytest.mark.parametrize("needs", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)], ids=str)
@pytest.mark.parametrize("form", ["gat", "gatv2", "two sweeps"])
def test_only_some_gradients(few: Workers, form: str, needs: Tuple[int, ...]) -> None:
    leaves, program = ATTENTION[form]
    graph = make("empty_worker", few.world, seed=5)
    compare(few, graph, leaves, program, "sum", needs=[bool(n) for n in needs], loose=10.0, strided=True)


def mask(workers: Workers, graph: Graph, shape: Tuple[int, ...], p: float, seed: int) -> np.ndarray:
    """What dropout multiplies with, as one worker draws it."""
    whole = Graph(graph.num_nodes, graph.src, graph.dst, np.array([0, graph.num_nodes]))
    ones = np.ones((len(graph.src), *shape))
    keys = 3 * np.arange(len(graph.src), dtype=np.int64) + 1
    alone = Workers(workers.pool, 1, "shm")
    (result,) = alone.run(
        "cases_expression:expression",
        [{"part": whole.part(0), "tensors": [ones], "grad": ones, "keys": keys}],
        program=["dropout", ["load", E, 0], p, seed],
        reduce=None,
        needs=[False],
    )
    drawn: np.ndarray = result["out"]
    return drawn


def test_dropout(few: Workers) -> None:
    """The same mask in forward and backward and for any number of workers, over weights and over messages."""
    graph = make("random", few.world, seed=31)
    leaves = [Leaf(U, (3, 1)), Leaf(V, (3, 1)), Leaf(U, (3, 8)), Leaf(E, (3, 1)), Leaf(E, (3, 8))]
    weights: Program = ["softmax", ["add", ["load", U, 0], ["load", V, 1]]]
    p, seeds = 0.3, (12, 2**63 + 5)

    def message(first: Program, second: Any) -> Program:
        return second(["mul", ["load", U, 2], first])

    program = message(["dropout", weights, p, seeds[0]], lambda x: ["dropout", x, p, seeds[1]])
    masked = message(["mul", weights, ["load", E, 3]], lambda x: ["mul", x, ["load", E, 4]])
    tensors = draw(graph, leaves, "float64")
    tensors[3], tensors[4] = mask(few, graph, (3, 1), p, seeds[0]), mask(few, graph, (3, 8), p, seeds[1])
    for reduce in ("sum", "mean"):
        compare(
            few, graph, leaves, program, reduce, tensors=tensors, masked=masked, needs=[True, True, True, False, False]
        )


def test_masks_of_dropout(two: Workers) -> None:
    graph = make("random", 2, seed=32)
    drawn = [mask(two, graph, (50,), p, seed) for p, seed in ((0.4, 1), (0.4, 2), (0.9, 1), (1.0, 1))]
    for m, p in zip(drawn, (0.4, 0.4, 0.9, 1.0)):
        assert set(np.unique(m)) <= {0.0, 1 / (1 - p) if p < 1 else 0.0}
        assert abs((m == 0).mean() - p) < 0.02
        for axis in (0, 1):  # no edge and no element is special
            assert np.abs((m == 0).mean(axis) - p).max() < 0.35
    assert 0.4 < ((drawn[0] == 0) == (drawn[1] == 0)).mean() < 0.65  # seeds differ


def test_extreme_logits(two: Workers) -> None:
    """Infinite and huge logits do what torch's softmax does with them."""
    graph = make("hub", 2, seed=33)
    leaves, program = ATTENTION["gat"]
    tensors = draw(graph, leaves, "float32")
    tensors[0][graph.src[:5]] = -np.inf
    tensors[0][graph.src[5:9], 1] = 1e30
    tensors[1][graph.dst[0], 2] = -np.inf  # all logits of a row and head
    tensors[0][:, 3] *= 60  # the greatest logit changes along the way
    needs = [False, False, False]
    compare(two, graph, leaves, program, "sum", "float32", tensors=tensors, needs=needs, loose=10.0)


def test_what_max_ignores(two: Workers) -> None:
    """NaN never wins, and what is infinite gives 0."""
    graph = make("random", 2, seed=34)
    for dtype in ("float32", "float64"):
        tensors = draw(graph, [Leaf(U, (3,))], dtype)
        tensors[0][graph.src[:9], 0], tensors[0][graph.src[3:20], 1] = np.nan, np.inf
        for reduce in ("max", "min"):
            compare(two, graph, [Leaf(U, (3,))], ["load", U, 0], reduce, dtype, tensors=tensors)


def test_no_columns(two: Workers) -> None:
    graph = make("random", 2, seed=35)
    leaves = [Leaf(U, (0,)), Leaf(V, (0,))]
    for reduce in ("sum", "max", None):
        compare(two, graph, leaves, ["add", ["load", U, 0], ["load", V, 1]], reduce)


BOTH: Program = ["add", ["load", U, 0], ["load", V, 1]]


@pytest.mark.parametrize("form", ["gat", "of a softmax"])
def test_eight_workers(pool: Pool, form: str) -> None:
    leaves, program = ATTENTION[form]
    for kind in ("empty_worker", "hub"):
        compare(Workers(pool, 8, "tcp"), make(kind, 8, seed=41), leaves, program, "sum", loose=10.0)


@pytest.mark.parametrize(
    ("leaves", "program", "error"),
    [
        ([("u", (60, 3), "float32")], ["load", U, 0], "this worker has 61 source nodes"),
        ([("e", (3,), "float32")], ["load", E, 0], "this worker has 400 in-edges"),
        ([("u", (61, 3), "int64")], ["load", U, 0], "float32 or float64"),
        ([("u", (61, 3), "float32"), ("v", (61, 3), "float64")], BOTH, "must be the same"),
        ([("u", (61, 3), "float32"), ("v", (61, 2), "float32")], BOTH, "aligned from the right"),
        ([("u", (61, 3), "float32")], ["frobnicate", ["load", U, 0]], "there are neg"),
        ([("u", (61, 3), "float32")], ["dropout", ["load", U, 0], 1.5, 0], "between 0 and 1"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_input(pool: Pool, leaves: Any, program: Program, error: str) -> None:
    graph = make("random", 1)
    tensors = [np.ones(shape, dtype) for _, shape, dtype in leaves]
    arguments = [{"part": graph.part(0), "tensors": tensors, "grad": np.ones(1)}]
    (failure,) = Workers(pool, 1, "shm").attempt(
        "cases_expression:expression", arguments, program=program, reduce="sum", needs=[False] * len(tensors)
    )
    assert failure.kind in ("ValueError", "TypeError") and error in failure.message
