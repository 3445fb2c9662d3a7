"""Edge expressions against plain torch and DGL on the whole graph: values and all gradients, element by element."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

from tests.parity import cases_expression
from tests.parity.attention_forms import form as form_of
from tests.parity.cases_expression import Program
from tests.parity.expressions import E, Leaf, P, U, V, compare, draw, mask
from tests.support.graphs import KINDS, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

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
    ["clamp_min", 0.3], ["clamp_max", 0.3], ["clamp_min_open", 0.3], ["clamp_max_open", 0.3],
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


X, Y, Z = (["load", side, i] for side, i in ((U, 0), (V, 1), (U, 2)))
BOTH: Program = ["add", X, Y]
HEADS = [Leaf(U, (3, 1)), Leaf(V, (3, 1)), Leaf(U, (3, 4))]
SHORT: Program = ["softmax", ["add", ["load", E, 1], ["load", V, 2]]]
ATTENTION: Dict[str, Tuple[List[Leaf], Program]] = {
    "gat": form_of("additive", 4, 8),
    "gatv2": form_of("gatv2", 2, 9),
    "dot product": form_of("dot product", 3, 5),
    "cosine": form_of("cosine", 1, 7),
    "with edges": (
        [Leaf(U, (2, 3)), Leaf(E, (2, 1)), Leaf(V, (2, 1))],
        ["scale", ["mul", SHORT, ["add", X, ["load", E, 1]]], 0.5],
    ),
    "of vectors": ([Leaf(U, (6,)), Leaf(V, (6,))], ["mul", X, ["softmax", ["sub", X, Y]]]),
    "two sweeps": (HEADS, ["tanh", ["mul", Z, ["softmax", BOTH]]]),
    "two softmaxes": (HEADS, ["mul", ["mul", Z, ["softmax", X]], ["softmax", ["add", Y, X]]]),
    "of a softmax": (HEADS, ["mul", Z, ["softmax", ["mul", Y, ["softmax", X]]]]),
    "weights alone": ([Leaf(U, (2,)), Leaf(V, (2,))], ["softmax", ["mul", X, Y]]),
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
        ([("u", (61, 3), "int64")], ["load", U, 0], "float32, float64 or bfloat16"),
        ([("u", (61, 3), "float32"), ("v", (61, 3), "float64")], BOTH, "must be the same"),
        ([("u", (61, 3), "float32"), ("v", (61, 2), "float32")], BOTH, "aligned from the right"),
        ([("u", (61, 3), "float32")], ["frobnicate", ["load", U, 0]], "give one of neg"),
        ([("u", (61, 3), "float32")], ["dropout", ["load", U, 0], 1.5, 0], "between 0 and 1"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_input(pool: Pool, leaves: Any, program: Program, error: str) -> None:
    graph = make("random", 1)
    tensors = [np.ones(shape, dtype) for _, shape, dtype in leaves]
    arguments = [{"part": graph.part(0), "tensors": tensors, "grad": np.ones(1)}]
    (failure,) = Workers(pool, 1, "shm").attempt(
        cases_expression.expression, arguments, program=program, reduce="sum", needs=[False] * len(tensors)
    )
    assert failure.kind in ("ValueError", "TypeError") and error in failure.message
