"""Writes in place through views of tensors of edges, against DGL, PyG and torch on the whole graph."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.parity import cases_views as cases
from tests.support.graphs import Graph, close, make
from tests.support.sessions import Workers

ROADS = ["functions", "edges", "pyg"]


def drawn(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.standard_normal((graph.num_nodes, 4)), rng.standard_normal((len(graph.src), 4))


@pytest.mark.parametrize("road", ROADS)
def test_views(few: Workers, road: str) -> None:
    if road == "pyg":
        pytest.importorskip("torch_geometric")
    graph = make("empty_worker" if few.world == 4 else "random", few.world, seed=3)
    x, e = drawn(graph)
    names = list(cases.MESSAGES)
    expected = cases.results(road, cases.whole(road, graph), names, x, e)
    for rank, found in enumerate(few.run(cases.on_worker, graph.shares(x=x, edges={"e": e}), road=road, names=names)):
        for name in names:
            rows, edges = graph.rows(rank), graph.edges(rank)
            places = {"value": rows, "x": rows, "e": edges, "without gradients": rows, "in inference mode": rows}
            for (what, place), got, wanted in zip(places.items(), found[name], expected[name], strict=True):
                close(got, wanted[place], f"{name}: {what}, rank {rank}")


@pytest.mark.parametrize("road", ROADS)
def test_refused(two: Workers, road: str) -> None:
    if road == "pyg":
        pytest.importorskip("torch_geometric")
    graph = make("random", 2, seed=3)
    x, e = drawn(graph)
    for found in two.run(cases.refused, graph.shares(x=x, edges={"e": e}), road=road):
        if road == "edges":  # functions that the engine does not know get values at once, so there it is right
            assert found["argument"] == "nothing"
            found["argument"] = found["shared"]
        assert all(re.search(text, found[name]) for name, (_, text) in cases.REFUSED.items()), found


def test_an_edge_column_of_the_user(few: Workers) -> None:
    """A message function of DGL's may change it, and the graph's column changes."""
    graph = make("empty_worker" if few.world == 4 else "random", few.world, seed=3)
    x, e = drawn(graph)
    out, *columns = cases.edge_column(cases.whole("functions", graph), x, e)
    for rank, (found, *own) in enumerate(few.run(cases.edge_column_on_worker, graph.shares(x=x, edges={"e": e}))):
        close(found, out[graph.rows(rank)], f"sums, rank {rank}")
        for got, wanted in zip(own, columns, strict=True):
            close(got, wanted[graph.edges(rank)], f"the column, rank {rank}")
