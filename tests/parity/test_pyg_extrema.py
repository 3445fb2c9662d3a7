"""Maxima and minima against PyG on the whole graph: NaN wins, infinities stay, equal numbers share the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_extrema as cases
from tests.support.graphs import Graph, make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")

DTYPES = ["float32", "float64"]


def of(workers: Workers) -> Graph:
    return make("empty_worker" if workers.world == 4 else "random", workers.world, seed=70)


def on(graph: Graph, rank: int, columns: dict[str, np.ndarray], **more: Any) -> dict[str, Any]:
    rows = {"x": graph.rows(rank), "grad": graph.rows(rank), "batch": graph.rows(rank), "e": graph.edges(rank)}
    own = {name: column[rows[name]] if name in rows else column for name, column in columns.items()}
    return {"part": graph.part(rank), "columns": own, **more}


def same(value: np.ndarray, truth: np.ndarray, exact: bool, what: str) -> None:
    """NaN and infinities in the same places."""
    tolerance = 0.0 if exact else 1e-5 if value.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(value, truth, rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("message", cases.MESSAGES)
def test_of_messages(few: Workers, message: str, op: str, dtype: str) -> None:
    graph = of(few)
    columns = cases.draw(graph, dtype)
    whole = torch.from_numpy(np.stack([graph.src, graph.dst]))
    truth = cases.of_messages(whole, message, op, columns)
    assert np.isnan(truth[0]).any() and np.isinf(truth[0]).any() and (truth[0] == 0).any()
    given = [on(graph, rank, columns) for rank in range(graph.world)]
    for rank, found in enumerate(few.run(cases.of_messages_on_worker, given, message=message, op=op)):
        rows = [graph.rows(rank)] * 3 + [graph.edges(rank)]
        for n, (value, expected, own) in enumerate(zip(found, truth, rows)):
            same(value, expected[own], n < 2, f"result {n} of rank {rank}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("op", "batched"), [("max", True), ("min", True), ("max", False)])
def test_of_nodes(few: Workers, op: str, batched: bool, dtype: str) -> None:
    graph = of(few)
    columns = cases.draw(graph, dtype)
    columns["of graphs"] = np.random.default_rng(72).integers(1, 9, (cases.GRAPHS, cases.WIDTH)).astype(dtype)
    truth = cases.of_nodes(op, batched, columns)
    given = [on(graph, rank, columns, share=1 / graph.world) for rank in range(graph.world)]
    for rank, found in enumerate(few.run(cases.of_nodes_on_worker, given, op=op, batched=batched)):
        same(found[0], truth[0], True, f"result of rank {rank}")
        for value, expected in zip(found[1:], truth[1:]):
            same(value, expected[graph.rows(rank)], False, f"gradient of rank {rank}")
