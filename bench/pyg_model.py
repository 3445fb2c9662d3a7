"""Models of PyG's layers for the benchmarks, and the same sums in the same order by DGL's functions.

``sage``, ``gcn`` and ``gin`` are 3 layers of 256 with batch norm between, ``gat`` and ``gat128`` those of model.py. The
others hold much for each edge in PyG, so they are 2 layers: ``gatv2`` and ``transformer`` of 4 heads of 16, then of one
head; ``pna`` of 32 columns behind a dense layer.
"""

from __future__ import annotations

import math

import dgl
import dgl.function as fn
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn

import whole_models
from net import HEADS, HIDDEN, WIDTHS, Block, Net, hidden

SUMS = ("sage", "gcn", "gin")
SMALL = ("gatv2", "transformer", "pna")
MODELS = ("gat", "sage", "gcn", "gin", *SMALL)
BY_DGL = tuple(name for name in MODELS if name != "pna")
"""Models whose layers are written with DGL's functions here."""
AGGREGATORS = ["mean", "min", "max", "std"]
SCALERS = ["identity", "amplification", "attenuation"]
DEGREES = torch.bincount(torch.full((100,), 50))
"""What PNA scales by: here all of 50, about the bench graph's mean."""


def make(name: str, library: str, n_features: int, n_classes: int, norm) -> nn.Module:
    """A model of layers of ``"pyg"``, or of ``"dgl"`` in PyG's order of sums and products."""
    if name in whole_models.WHOLE:
        return whole_models.make(name, n_features, n_classes)
    layer = of_pyg if library == "pyg" else of_dgl
    if name in SUMS:
        widths = [n_features, HIDDEN, HIDDEN, n_classes]
        blocks = [hidden(layer(name, i, o), norm(o)) for i, o in zip(widths, widths[1:-1])]
        return Net([*blocks, Block(layer(name, *widths[-2:]))])
    if name in WIDTHS:
        widths = [n_features, HEADS * WIDTHS[name], HEADS * WIDTHS[name]]
        blocks = [Block(layer(name, i, WIDTHS[name], HEADS), None, F.elu) for i in widths[:-1]]
        return Net([*blocks, Block(layer(name, widths[-1], n_classes, HEADS))])
    if name == "pna":
        return Net(
            [Block(Dense(n_features, 32)), Block(layer(name, 32, 32), None, F.relu), Block(layer(name, 32, n_classes))]
        )
    return Net([Block(layer(name, n_features, 16, HEADS), None, F.elu), Block(layer(name, 16 * HEADS, n_classes, 1))])


def of_pyg(name: str, i: int, o: int, heads: int = 1) -> nn.Module:
    if name == "sage":
        return pyg.SAGEConv(i, o)
    if name == "gcn":  # the graph has a self loop at each node
        return pyg.GCNConv(i, o, add_self_loops=False, cached=True)
    if name == "gin":
        return pyg.GINConv(mlp(i, o))
    if name == "gatv2":
        return PerHead(pyg.GATv2Conv(i, o, heads, add_self_loops=False), heads)
    if name == "transformer":
        return PerHead(pyg.TransformerConv(i, o, heads), heads)
    if name == "pna":
        return pyg.PNAConv(i, o, AGGREGATORS, SCALERS, DEGREES)
    return PerHead(pyg.GATConv(i, o, heads, add_self_loops=False), heads)


def of_dgl(name: str, i: int, o: int, heads: int = 1) -> nn.Module:
    """dgl.nn multiplies before it sums where that makes rows narrower; PyG does not, so these do not either."""
    if name == "gatv2":
        return dgl.nn.GATv2Conv(i, o, heads, allow_zero_in_degree=True)
    if name in WIDTHS:
        return dgl.nn.GATConv(i, o, heads, allow_zero_in_degree=True)
    return {"sage": Sage, "gcn": Gcn, "gin": Gin, "transformer": Transformer}[name](i, o, heads)


def mlp(i: int, o: int) -> nn.Module:
    return nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))


class PerHead(nn.Module):
    """PyG gives heads side by side; here they are a dimension, as DGL has it."""

    def __init__(self, layer: nn.Module, heads: int) -> None:
        super().__init__()
        self.layer, self.heads = layer, heads

    def forward(self, x, edges):
        return self.layer(x, edges).view(x.shape[0], self.heads, -1)


class Dense(nn.Linear):
    """A dense layer in the place of a convolution."""

    def forward(self, x, edges):
        return super().forward(x)


class Sage(nn.Module):
    def __init__(self, i: int, o: int, heads: int) -> None:
        super().__init__()
        self.neighbours, self.own = nn.Linear(i, o), nn.Linear(i, o, bias=False)

    def forward(self, graph, x):
        return self.neighbours(reduced(graph, x, fn.mean)) + self.own(x)


class Gcn(nn.Module):
    def __init__(self, i: int, o: int, heads: int) -> None:
        super().__init__()
        self.dense, self.bias = nn.Linear(i, o, bias=False), nn.Parameter(torch.zeros(o))

    def forward(self, graph, x):
        norm = graph.in_degrees().float().pow(-0.5).unsqueeze(-1)
        return reduced(graph, self.dense(x) * norm, fn.sum) * norm + self.bias


class Gin(nn.Module):
    def __init__(self, i: int, o: int, heads: int) -> None:
        super().__init__()
        self.dense = mlp(i, o)

    def forward(self, graph, x):
        return self.dense(reduced(graph, x, fn.sum) + x)


class Transformer(nn.Module):
    def __init__(self, i: int, o: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.dense = nn.ModuleDict({name: nn.Linear(i, heads * o) for name in ("key", "query", "value", "skip")})

    def forward(self, graph, x):
        rows = {name: dense(x).view(x.shape[0], self.heads, -1) for name, dense in self.dense.items()}
        with graph.local_scope():
            graph.srcdata.update({"key": rows["key"], "value": rows["value"]})
            graph.dstdata["query"] = rows["query"]
            graph.apply_edges(fn.u_dot_v("key", "query", "logit"))
            logits = graph.edata.pop("logit") / math.sqrt(rows["key"].shape[-1])
            graph.edata["weight"] = dgl.ops.edge_softmax(graph, logits)
            graph.update_all(fn.u_mul_e("value", "weight", "m"), fn.sum("m", "out"))
            return graph.dstdata["out"] + rows["skip"]


def reduced(graph, x, op):
    with graph.local_scope():
        graph.srcdata["x"] = x
        graph.update_all(fn.copy_u("x", "m"), op("m", "out"))
        return graph.dstdata["out"]
