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
    given = [
        {"part": graph.part(r), "road": road, "names": names, "x": x[graph.rows(r)], "e": e[graph.edges(r)]}
        for r in range(graph.world)
    ]
    for rank, found in enumerate(few.run(cases.on_worker, given)):
        for name in names:
            places = (graph.rows(rank), graph.rows(rank), graph.edges(rank))
            for what, got, wanted, place in zip(("value", "x", "e"), found[name], expected[name], places):
                close(got, wanted[place], f"{name}: {what}, rank {rank}")


@pytest.mark.parametrize("road", ROADS)
def test_refused(two: Workers, road: str) -> None:
    if road == "pyg":
        pytest.importorskip("torch_geometric")
    graph = make("random", 2, seed=3)
    x, e = drawn(graph)
    given = [
        {"part": graph.part(r), "road": road, "x": x[graph.rows(r)], "e": e[graph.edges(r)]} for r in range(graph.world)
    ]
    for found in two.run(cases.refused, given):
        assert all(re.search(text, found[name]) for name, (_, text) in cases.REFUSED.items()), found
