"""Attention of widths that have loops of their own, and whose gradients of destinations are computed in the sweep over
sources, against plain DGL: values and all gradients, element by element."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from tests.parity import cases_expression
from tests.parity.attention_forms import FORMS, form
from tests.parity.cases_expression import Program
from tests.parity.expressions import E, Leaf, P, U, V, compare, draw, mask
from tests.support.graphs import Graph, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

SHAPES = [(1, 64), (4, 32), (8, 16), (3, 16), (4, 47), (1, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", FORMS)
def test_form(few: Workers, name: str, shape: Tuple[int, int]) -> None:
    leaves, program = form(name, *shape)
    for n, kind in enumerate(("random", "hub") if shape == (4, 32) else ("empty_worker",)):
        graph = make(kind, few.world, seed=71)
        for dtype in ("float32", "float64")[:: 1 - 2 * (n % 2)][: 2 if shape == (4, 32) else 1]:
            compare(few, graph, leaves, program, "sum", dtype, loose=20.0)


@pytest.mark.parametrize("name", FORMS)
def test_repeats_to_the_bit(few: Workers, name: str) -> None:
    """Enough edges for many tasks, which end in another order each time: results and gradients repeat."""
    nodes, edges = 900, 40_000
    rng = np.random.default_rng(72)
    cut = np.linspace(0, nodes, few.world + 1).astype(np.int64)
    src = np.concatenate([rng.integers(0, nodes, edges), np.full(9_000, 7)])  # a hub to leave
    dst = np.concatenate([rng.integers(0, nodes, edges), rng.integers(0, nodes, 9_000)])
    dst[edges // 2 : edges // 2 + 9_000] = 11  # and one to arrive at
    graph = Graph(nodes, src, dst, cut)
    leaves, program = form(name, 4, 16)
    rows: Dict[str, int] = {"u": nodes, "v": nodes, "e": len(src)}
    shapes = [(rows[x.side], *x.shape) if x.side in rows else x.shape for x in leaves]
    tensors = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    pick: Dict[str, Any] = {"u": graph.rows, "v": graph.rows, "e": graph.edges, "p": lambda _: ...}
    grad = rng.standard_normal((nodes, 4, 16)).astype(np.float32)
    own = [[t[pick[x.side](rank)] for t, x in zip(tensors, leaves)] for rank in range(graph.world)]
    given = graph.shares(grad=grad, ranks={"tensors": own})
    found = [
        few.run(cases_expression.expression, given, program=program, reduce="sum", needs=[True] * len(leaves))
        for _ in range(3)
    ]
    for again in found[1:]:
        for rank, (a, b) in enumerate(zip(found[0], again)):
            np.testing.assert_array_equal(a["out"], b["out"], f"output of rank {rank}")
            for i, (x, y) in enumerate(zip(a["grads"], b["grads"])):
                np.testing.assert_array_equal(x, y, f"gradient {i} of rank {rank}")


WIDE = ("gatv2", "dot product", "cosine")


def weighted(message: Program, around: str, *more: object) -> Program:
    """The message with something done to its softmax."""
    op, value, softmax = message
    return [op, value, [around, softmax, *more]]


def with_edges(name: str, heads: int, width: int) -> Tuple[List[Leaf], Program]:
    """The form with a term of edges added to its logits."""
    leaves, (op, value, (softmax, logits)) = form(name, heads, width)
    leaves = [*leaves, Leaf(E, (heads, 1))]
    return leaves, [op, value, [softmax, ["add", logits, ["load", E, len(leaves) - 1]]]]


@pytest.mark.parametrize("name", WIDE)
def test_extreme_logits(few: Workers, name: str) -> None:
    """-inf, as a mask of edges has it, and logits whose exponential has no place in the type; they rise along a row."""
    graph = make("hub", few.world, seed=81)
    leaves, program = with_edges(name, 4, 16)
    for dtype in ("float32", "float64"):
        tensors = draw(graph, leaves, dtype)
        tensors[-1][::3] = -np.inf
        tensors[-1][1::3, 1] *= 200
        tensors[-1][1::3, 2] = 3000
        alone = np.bincount(graph.dst, np.isfinite(tensors[-1]).all((1, 2)), graph.num_nodes) == 0
        tensors[-1][alone[graph.dst]] = 1  # no row of -inf alone, which has no softmax
        needs = [True] * (len(leaves) - 1) + [False]
        compare(few, graph, leaves, program, "sum", dtype, tensors=tensors, needs=needs, loose=30.0)


@pytest.mark.parametrize("name", WIDE)
def test_dropout(few: Workers, name: str) -> None:
    graph = make("random", few.world, seed=82)
    leaves, program = form(name, 4, 16)
    leaves = [*leaves, Leaf(E, (4, 1))]
    dropped = weighted(program, "dropout", 0.4, 21)
    masked = weighted(program, "mul", ["load", E, len(leaves) - 1])
    tensors = draw(graph, leaves, "float64")
    tensors[-1] = mask(few, graph, (4, 1), 0.4, 21)
    needs = [True] * (len(leaves) - 1) + [False]
    compare(few, graph, leaves, dropped, "sum", tensors=tensors, masked=masked, needs=needs)


@pytest.mark.parametrize("shape", [(4, 16), (3, 16), (2, 47)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_several_terms(few: Workers, shape: Tuple[int, int]) -> None:
    """A destination's gradient from two places: a product, and activations; and one of each alone."""
    leaves = [Leaf(U, shape), Leaf(V, shape), Leaf(P, shape), Leaf(V, shape)]
    act: Program = ["leaky_relu", ["add", ["load", U, 0], ["load", V, 1]], 0.2]
    logits: Program = ["add", ["total", ["mul", act, ["param", 2]], [1], True], ["dot", ["load", U, 0], ["load", V, 1]]]
    logits = ["scale", ["add", logits, ["dot", ["load", U, 0], ["load", V, 3]]], 0.2]
    program: Program = ["mul", ["load", U, 0], ["softmax", logits]]
    for kind in ("empty_worker", "random"):
        compare(few, make(kind, few.world, seed=83), leaves, program, "sum", "float32", loose=30.0)


@pytest.mark.parametrize("name", WIDE)
def test_some_gradients(few: Workers, name: str) -> None:
    """Without those of sources there is no sweep over them; without those of parameters nothing is paired."""
    graph = make("random", few.world, seed=84)
    leaves, program = form(name, 4, 16)
    for side in {leaf.side for leaf in leaves}:
        for needs in ([leaf.side == side for leaf in leaves], [leaf.side != side for leaf in leaves]):
            compare(few, graph, leaves, program, "sum", "float32", needs=needs, loose=20.0)


@pytest.mark.parametrize("name", WIDE)
def test_eight_workers(pool: Pool, name: str) -> None:
    for shape, kind in (((4, 16), "hub"), ((1, 47), "empty_worker")):
        leaves, program = form(name, *shape)
        compare(Workers(pool, 8, "shm"), make(kind, 8, seed=85), leaves, program, "sum", "float32", loose=30.0)
