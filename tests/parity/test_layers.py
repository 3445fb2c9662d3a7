"""Layers of dgl.nn, not touched, against DGL on the whole graph: outputs and all gradients, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity.layer_oracle import compare
from tests.support.graphs import make
from tests.support.sessions import Workers

IN = 7
SQUARE = {"in_feats": IN, "out_feats": 5}
NORMS = ("none", "both", "left", "right")
ZERO = {"allow_zero_in_degree": True}
LOOSE = {"float32": 1.0, "float64": 10.0}
"""Single precision holds what a single sum does; in double precision the workers' partial sums may show."""

# name: (layer, its arguments, shape of the edge weights after the first dimension, or None)
LAYERS: dict[str, tuple[str, dict[str, Any], tuple[int, ...] | None]] = {
    "sage_mean": ("SAGEConv", {**SQUARE, "aggregator_type": "mean"}, None),
    "sage_mean_widening": ("SAGEConv", {"in_feats": IN, "out_feats": 11, "aggregator_type": "mean"}, None),
    "sage_mean_weights": ("SAGEConv", {**SQUARE, "aggregator_type": "mean"}, ()),
    "sage_gcn": ("SAGEConv", {**SQUARE, "aggregator_type": "gcn"}, None),
    "sage_gcn_weights": ("SAGEConv", {**SQUARE, "aggregator_type": "gcn"}, (1,)),
    **{f"graph_{norm}": ("GraphConv", {**SQUARE, **ZERO, "norm": norm}, None) for norm in NORMS},
    **{
        f"graph_{norm}_weights": ("GraphConv", {"in_feats": IN, "out_feats": 9, **ZERO, "norm": norm}, ())
        for norm in NORMS
    },
    "gin_sum": ("GINConv", {"aggregator_type": "sum", "apply_func": (IN, 4), "learn_eps": True}, None),
    "gin_mean": ("GINConv", {"aggregator_type": "mean", "apply_func": (IN, 4)}, None),
    "gin_sum_weights": ("GINConv", {"aggregator_type": "sum"}, ()),
    "sg": ("SGConv", {"in_feats": IN, "out_feats": 5, "k": 2, **ZERO}, None),
    "appnp": ("APPNPConv", {"k": 3, "alpha": 0.2}, None),
    "tag": ("TAGConv", {**SQUARE, "k": 2}, None),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_layer(workers: Workers, kind: str, layer: str, dtype: str) -> None:
    name, options, of_e = LAYERS[layer]
    graph = make(kind, workers.world, seed=30)
    rng = np.random.default_rng(31)
    x = rng.standard_normal((graph.num_nodes, IN)).astype(dtype)
    edge = {}
    if of_e is not None:
        edge["edge_weight"] = rng.random((len(graph.src), *of_e)).astype(dtype) + np.dtype(dtype).type(0.5)
    compare(workers, "dgl", graph, name, options, x, edge, loose=LOOSE[dtype])


@pytest.mark.parametrize("kind", ["one_node", "no_edges", "hub", "no_edges_between"])
def test_odd_graphs(workers: Workers, kind: str) -> None:
    """One node, no edges at all (which SAGEConv asks about), a hub, and workers that share no edge."""
    graph = make(kind, workers.world, seed=32)
    x = np.random.default_rng(33).standard_normal((graph.num_nodes, IN))
    for layer in ("sage_mean", "graph_both"):
        name, options, _ = LAYERS[layer]
        compare(workers, "dgl", graph, name, options, x, {}, loose=LOOSE["float64"])
