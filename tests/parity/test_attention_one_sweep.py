"""Attention whose gradients of destinations are computed in the sweep over sources, against plain DGL: values and all
gradients, element by element."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np
import pytest

from tests.parity.attention_forms import form
from tests.parity.cases_expression import Program
from tests.parity.expressions import E, Leaf, P, U, V, compare, draw, mask
from tests.support.graphs import make
from tests.support.pool import Pool
from tests.support.sessions import Workers

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
