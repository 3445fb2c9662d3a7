"""Scatter by hand, whatever way the index is written and whatever function adds up, against torch on a whole graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_scatter as cases
from tests.support.graphs import make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")


@pytest.mark.parametrize("side", [0, 1], ids=["sources", "destinations"])
def test_scatter(few: Workers, side: int) -> None:
    """Results, what was written in place, and gradients; the tensor of the user has nothing added but messages."""
    graph, rng = make("empty_worker" if few.world == 4 else "random", few.world, seed=51), np.random.default_rng(52)
    x, first = (rng.standard_normal((graph.num_nodes, 3)) for _ in range(2))
    truth = cases.scattered(torch.from_numpy(np.stack([graph.src, graph.dst])), x, first, side)
    rows = [graph.rows(rank) for rank in range(few.world)]
    given = [{"part": graph.part(rank), "x": x[mine], "first": first[mine]} for rank, mine in enumerate(rows)]
    for mine, found in zip(rows, few.run(cases.on_worker, given, side=side)):
        assert not found["said"]
        for name, (result, grad, out) in truth.items():
            np.testing.assert_allclose(found[name][0], result[mine], rtol=1e-10, atol=1e-10, err_msg=name)
            np.testing.assert_allclose(found[name][1], grad[mine], rtol=1e-9, atol=1e-9, err_msg=name)
            np.testing.assert_allclose(found[name][2], out[mine], rtol=1e-10, atol=1e-10, err_msg=name)


def test_one_of_several(two: Workers) -> None:
    """Where one of the edges of a node would win, and torch does not say which: ``out[col] += messages`` too."""
    graph = make("random", 2, seed=53)
    for said in two.run(cases.refused, graph.shares()):
        assert said.keys() == cases.REFUSED.keys()
        assert all("which one is not defined" in text and "index_add_" in text for text in said.values())
