"""Attention of widths that have loops of their own, against plain DGL: values and all gradients, element by element."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import pytest

from tests.parity import cases_expression
from tests.parity.attention_forms import FORMS, form
from tests.parity.expressions import compare
from tests.support.graphs import Graph, make
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
