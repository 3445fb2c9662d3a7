"""Layers of dgl.nn, not touched, against DGL on the whole graph: outputs and all gradients, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cases import make_layer
from conftest import Workers
from graphs import Graph, close, make

dgl = pytest.importorskip("dgl")

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


def oracle(graph: Graph, name: str, options: dict[str, Any], x: np.ndarray, e: np.ndarray | None) -> dict[str, Any]:
    """DGL on the whole graph, with its own random parameters."""
    torch.set_default_dtype(torch.from_numpy(x).dtype)
    try:
        torch.manual_seed(11)
        model = make_layer(dgl.nn, name, options)
        for parameter in model.parameters():  # biases begin at zero, which hides mistakes
            torch.nn.init.normal_(parameter)
        whole = dgl.graph((torch.from_numpy(graph.src), torch.from_numpy(graph.dst)), num_nodes=graph.num_nodes)
        feature = torch.from_numpy(x.copy()).requires_grad_()
        weight = None if e is None else torch.from_numpy(e.copy()).requires_grad_()
        out = model(whole, feature) if weight is None else model(whole, feature, edge_weight=weight)
        grad = torch.from_numpy(np.random.default_rng(12).standard_normal(tuple(out.shape)).astype(x.dtype))
        out.backward(grad)
    finally:
        torch.set_default_dtype(torch.float32)
    assert feature.grad is not None
    return {
        "state": {k: v.numpy() for k, v in model.state_dict().items()},
        "out": out.detach().numpy(),
        "grad": grad.numpy(),
        "x": feature.grad.numpy(),
        "e": None if weight is None or weight.grad is None else weight.grad.numpy(),
        "parameters": {k: None if p.grad is None else p.grad.numpy() for k, p in model.named_parameters()},
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_layer(workers: Workers, kind: str, layer: str, dtype: str) -> None:
    name, options, of_e = LAYERS[layer]
    graph = make(kind, workers.world, seed=30)
    rng = np.random.default_rng(31)
    x = rng.standard_normal((graph.num_nodes, IN)).astype(dtype)
    e = None if of_e is None else rng.random((len(graph.src), *of_e)).astype(dtype) + np.dtype(dtype).type(0.5)
    expected = oracle(graph, name, options, x, e)
    per_rank = [
        {
            "part": graph.part(rank),
            "x": x[graph.rows(rank)],
            "e": None if e is None else e[graph.edges(rank)],
            "grad": expected["grad"][graph.rows(rank)],
        }
        for rank in range(graph.world)
    ]
    results = workers.run("layer", per_rank, name=name, options=options, state=expected["state"], dtype=dtype)
    for rank, result in enumerate(results):
        rows, edges = graph.rows(rank), graph.edges(rank)
        close(result["out"], expected["out"][rows], f"output of rank {rank}", LOOSE[dtype])
        close(result["x"], expected["x"][rows], f"gradient of the input, rank {rank}", LOOSE[dtype])
        if e is not None:
            close(result["e"], expected["e"][edges], f"gradient of the edge weights, rank {rank}", LOOSE[dtype])
        for key, value in expected["parameters"].items():
            if value is None:
                assert result["parameters"][key] is None
            else:
                close(result["parameters"][key], value, f"gradient of {key}, rank {rank}", LOOSE[dtype])


@pytest.mark.parametrize("kind", ["one_node", "no_edges", "hub", "no_edges_between"])
def test_odd_graphs(workers: Workers, kind: str) -> None:
    """One node, no edges at all (which SAGEConv asks about), a hub, and workers that share no edge."""
    graph = make(kind, workers.world, seed=32)
    x = np.random.default_rng(33).standard_normal((graph.num_nodes, IN))
    for layer in ("sage_mean", "graph_both"):
        name, options, _ = LAYERS[layer]
        expected = oracle(graph, name, options, x, None)
        per_rank = [
            {"part": graph.part(r), "x": x[graph.rows(r)], "e": None, "grad": expected["grad"][graph.rows(r)]}
            for r in range(graph.world)
        ]
        results = workers.run("layer", per_rank, name=name, options=options, state=expected["state"], dtype="float64")
        for rank, result in enumerate(results):
            close(result["out"], expected["out"][graph.rows(rank)], f"{layer}, output of rank {rank}", LOOSE["float64"])
            close(result["x"], expected["x"][graph.rows(rank)], f"{layer}, gradient of rank {rank}", LOOSE["float64"])
