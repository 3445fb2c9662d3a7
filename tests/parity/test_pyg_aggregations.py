"""Every aggregation of torch_geometric as that of a layer, against PyG on the whole graph."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import cases_pyg
from tests.parity.pyg_aggregations import CASES
from tests.parity.test_pyg_layers import check
from tests.support.graphs import Graph, make
from tests.support.pool import Pool
from tests.support.sessions import Workers, half

pytest.importorskip("torch_geometric")


def ordered(graph: Graph) -> Graph:
    """The graph with its edges in the order of their destinations, as PyG wants it for some aggregations."""
    order = np.argsort(graph.dst, kind="stable")
    return graph._replace(src=graph.src[order], dst=graph.dst[order])


@pytest.mark.parametrize("name", CASES)
def test_aggregation(few: Workers, name: str) -> None:
    """Results, and the gradients of nodes, edges and parameters, in double precision; of 4 workers one owns no node."""
    check(few, ordered(make("empty_worker" if few.world == 4 else "random", few.world, seed=50)), name, "float64")


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", half(CASES))
def test_over_tcp(pool: Pool, name: str, world: int) -> None:
    check(Workers(pool, world, "tcp"), ordered(make("random", world, seed=51)), name, "float64")


@pytest.mark.parametrize("name", half(CASES))
def test_single_precision(two: Workers, name: str) -> None:
    check(two, ordered(make("random", 2, seed=52)), name, "float32", rounds=True)


def test_refused(two: Workers) -> None:
    graph = make("random", 2, seed=53)
    for said in two.run(cases_pyg.equilibrium, graph.shares()):
        assert "on a graph split over workers would differentiate" in said
