"""The models of study.py: SAGE and GAT of DGL on one graph or block for each layer, GCNII of DGL and SGFormer of PyG on
one graph, which may be a piece of the whole."""

from __future__ import annotations

import dgl
import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, HEADS, DEPTH = 64, 4, 8
MODELS = ("sage", "gat", "gcnii", "sgformer")
BLOCKS = ("sage", "gat")
"""Those whose layers run on blocks that were sampled for each."""


class Layers(nn.Module):
    """Two layers of SAGE or of GAT."""

    def __init__(self, name: str, n_features: int, n_classes: int, dropout: float) -> None:
        super().__init__()
        if name == "sage":
            layers = [dgl.nn.SAGEConv(n_features, HIDDEN, "mean"), dgl.nn.SAGEConv(HIDDEN, n_classes, "mean")]
        else:
            options = {"allow_zero_in_degree": True}
            first = dgl.nn.GATConv(n_features, HIDDEN // HEADS, HEADS, **options)
            layers = [first, dgl.nn.GATConv(HIDDEN, n_classes, 1, **options)]
        self.layers, self.dropout, self.gat = nn.ModuleList(layers), nn.Dropout(dropout), name == "gat"

    def forward(self, graphs, x):
        x = self.layers[0](graphs[0], self.dropout(x))
        x = F.elu(x.flatten(1)) if self.gat else F.relu(x)
        x = self.layers[1](graphs[1], self.dropout(x))
        return x.mean(1) if self.gat else x


class GCNII(nn.Module):
    def __init__(self, n_features: int, n_classes: int, dropout: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(n_features, HIDDEN), nn.Linear(HIDDEN, n_classes)
        layers = [dgl.nn.GCN2Conv(HIDDEN, i + 1, 0.1, 0.5, allow_zero_in_degree=True) for i in range(DEPTH)]
        self.layers, self.dropout = nn.ModuleList(layers), nn.Dropout(dropout)

    def forward(self, graph, x):
        first = x = F.relu(self.first(self.dropout(x)))
        for layer in self.layers:
            x = F.relu(layer(graph, self.dropout(x), first))
        return self.last(self.dropout(x))


class SGFormer(nn.Module):
    """On the edges of PyG: of a piece of the graph [2, E], or those of ``sar.load(..., pyg=True)``."""

    def __init__(self, n_features: int, n_classes: int, dropout: float) -> None:
        super().__init__()
        from torch_geometric.nn import SGFormer as Model

        options = {"trans_num_layers": 1, "gnn_num_layers": 2, "trans_dropout": dropout, "gnn_dropout": dropout}
        self.model = Model(n_features, HIDDEN, n_classes, **options)

    def forward(self, edges, x):
        return self.model(x, edges, torch.zeros(len(x), dtype=torch.int64))


def make(name: str, n_features: int, n_classes: int, dropout: float) -> nn.Module:
    if name in BLOCKS:
        return Layers(name, n_features, n_classes, dropout)
    return (GCNII if name == "gcnii" else SGFormer)(n_features, n_classes, dropout)
