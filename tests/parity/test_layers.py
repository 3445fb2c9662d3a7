"""Layers of dgl.nn, not touched, on every kind of graph and number of workers, against DGL on the whole graph."""

from __future__ import annotations

import pytest

from tests.parity.cases_layers import FEW
from tests.parity.layer_oracle import compare
from tests.support.graphs import make
from tests.support.sessions import Workers

LAYERS = [*(name for name in FEW if not name.startswith(("gat", "rel_graph"))), "sage_mean", "appnp", "tag"]
"""Attention and types of edges have tests of their own."""
LOOSE = {"float32": 1.0, "float64": 10.0}
"""Single precision holds what a single sum does; in double precision the workers' partial sums may show."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_layer(workers: Workers, kind: str, layer: str, dtype: str) -> None:
    compare(workers, make(kind, workers.world, seed=30), layer, dtype, loose=LOOSE[dtype])


@pytest.mark.parametrize("kind", ["one_node", "no_edges", "hub", "no_edges_between"])
def test_odd_graphs(workers: Workers, kind: str) -> None:
    """One node, no edges at all (which SAGEConv asks about), a hub, and workers that share no edge."""
    for layer in ("sage_mean", "graph_both"):
        compare(workers, make(kind, workers.world, seed=32), layer, "float64")
