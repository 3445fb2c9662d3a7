"""Scatter by hand, whatever way the index is written and whatever function adds up, against torch on a whole graph;
maxima and minima against PyG: NaN wins, infinities stay, equal numbers share the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_scatter as cases
from tests.support.graphs import Graph, make
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


def test_softmax_by_steps(few: Workers) -> None:
    graph = of(few)
    x = np.random.default_rng(54).standard_normal((graph.num_nodes, 3))
    truth = cases.softmaxes(torch.from_numpy(np.stack([graph.src, graph.dst])), x)
    for rank, found in enumerate(few.run(cases.softmaxes_on_worker, graph.shares(x=x))):
        for name, results in truth.items():
            for value, expected in zip(found[name], results):
                same(value, expected[graph.rows(rank)], False, f"{name}, rank {rank}")


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
