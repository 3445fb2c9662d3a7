"""LabelPropagation, CorrectAndSmooth, subgraph and dropout_node against PyG on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_propagation as cases
from tests.parity.test_pyg_layers import near
from tests.support.graphs import Graph, make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")


def columns(graph: Graph, rank: int | None = None) -> dict[str, np.ndarray]:
    """Columns of all nodes and edges, or those of a rank. The largest label is on one node."""
    rng = np.random.default_rng(91)
    n = graph.num_nodes
    y = rng.integers(0, cases.CLASSES - 1, n)
    y[n // 2] = cases.CLASSES - 1
    mask = rng.random(n) < 0.6
    mask[n // 2] = True
    mask[graph.rows(0)] = graph.world == 1  # the first of several workers has no training nodes
    mask[n // 2] = True
    made = {"y": y, "mask": mask, "scores": rng.random((n, cases.CLASSES)), "w": rng.random(len(graph.src)) + 0.1}
    if rank is None:
        return made
    return {key: column[graph.edges(rank) if key == "w" else graph.rows(rank)] for key, column in made.items()}


def given(graph: Graph) -> list[dict[str, Any]]:
    return [{"part": graph.part(rank), "columns": columns(graph, rank)} for rank in range(graph.world)]


@pytest.mark.parametrize("kind", cases.KINDS)
def test_labels(few: Workers, kind: str) -> None:
    graph = make("empty_worker" if few.world == 4 else "random", few.world, seed=90)
    truth = cases.spread(kind, torch.from_numpy(np.stack([graph.src, graph.dst])), columns(graph))
    for rank, found in enumerate(few.run(cases.spread_on_worker, given(graph), kind=kind)):
        for n, (value, expected) in enumerate(zip(found, truth)):
            unit = 1e-6 if expected.dtype == np.float32 else 1e-10
            expected = expected[graph.rows(rank)]
            # PyG's gradient of its scale is NaN as soon as one node has no labels near it
            np.testing.assert_array_equal(np.isnan(value), np.isnan(expected))
            near(np.nan_to_num(value), np.nan_to_num(expected), unit, f"result {n} of rank {rank}")


def test_edges_between_some_nodes(few: Workers) -> None:
    graph = make("empty_worker" if few.world == 4 else "random", few.world, seed=92)
    out, x, edges = cases.induced(torch.from_numpy(np.stack([graph.src, graph.dst])), columns(graph))
    for rank, one in enumerate(few.run(cases.induced_on_worker, given(graph))):
        near(one["found"][0], out[graph.rows(rank)], 1e-10, "result")
        near(one["found"][1], x[graph.rows(rank)], 1e-10, "gradient")
        np.testing.assert_array_equal(one["found"][2], edges[graph.edges(rank)])
        assert all(one["same"])


@pytest.mark.parametrize("kind", ["MX", "SD"])
def test_attention_loss_of_super_gat(few: Workers, kind: str) -> None:
    """Workers draw pairs of all nodes that are no edges. With these pairs PyG has the same loss and gradients."""
    graph = make("random", few.world, seed=87)
    x = np.random.default_rng(88).standard_normal((graph.num_nodes, 5))
    found = few.run(cases.super_gat_on_worker, graph.shares(x=x), kind=kind)
    drawn = np.concatenate([one["drawn"][0] for one in found], 1)
    edges = {*zip(graph.src.tolist(), graph.dst.tolist()), *zip(graph.dst.tolist(), graph.src.tolist())}
    assert not edges & set(zip(*drawn.tolist())) and drawn.shape[1] > graph.num_nodes and (drawn[0] != drawn[1]).all()
    index = torch.from_numpy(np.stack([graph.src, graph.dst]))
    whole = cases.super_gat(x, index, kind, torch.from_numpy(drawn))
    np.testing.assert_allclose(sum(one["loss"] for one in found), whole["loss"], rtol=1e-10)
    for rank, one in enumerate(found):
        for name in ("out", "x"):
            np.testing.assert_allclose(one[name], whole[name][graph.rows(rank)], rtol=1e-9, atol=1e-10)
    for name, value in whole["parameters"].items():
        total = sum(one["parameters"][name] for one in found)
        np.testing.assert_allclose(total, value, rtol=1e-9, atol=1e-9, err_msg=name)
