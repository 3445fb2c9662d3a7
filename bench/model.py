"""The models of the epoch benchmark, for all peers alike: 3 layers of SAGE (mean, 256 hidden, batch norm between) or of
GAT (4 heads of 32 or of 128, ELU between, heads of the last layer averaged)."""

from __future__ import annotations

import dgl
import torch
import torch.nn.functional as F
from torch import nn

HIDDEN = 256
HEADS = 4
WIDTHS = {"gat": 32, "gat128": 128}
MODELS = ("sage", *WIDTHS)


class SAGE(nn.Module):
    """``layer(i, o)`` makes a convolution, ``norm(n)`` a batch norm of n features."""

    def __init__(self, n_features: int, n_classes: int, norm, layer) -> None:
        super().__init__()
        widths = [n_features, HIDDEN, HIDDEN, n_classes]
        self.layers = nn.ModuleList([layer(i, o) for i, o in zip(widths, widths[1:])])
        self.norms = nn.ModuleList([norm(HIDDEN) for _ in range(2)])

    def forward(self, convolve, h):
        for layer, norm in zip(self.layers, self.norms):
            h = F.relu(norm(convolve(layer, h)))
        return convolve(self.layers[-1], h)


class GAT(nn.Module):
    """``layer(i, o, heads)`` makes a convolution."""

    def __init__(self, n_features: int, n_classes: int, width: int, layer) -> None:
        super().__init__()
        sizes = [(n_features, width), (HEADS * width, width), (HEADS * width, n_classes)]
        self.layers = nn.ModuleList([layer(i, o, HEADS) for i, o in sizes])

    def forward(self, convolve, h):
        for layer in self.layers[:-1]:
            h = F.elu(convolve(layer, h).flatten(1))
        return convolve(self.layers[-1], h).mean(1)


def make(name: str, library: str, n_features: int, n_classes: int, norm) -> nn.Module:
    """A model of ``library``'s layers: ``"dgl"`` (which SAR uses too) or ``"pyg"``."""
    if library == "dgl":

        def sage(i: int, o: int) -> nn.Module:
            return dgl.nn.SAGEConv(i, o, "mean")

        def gat(i: int, o: int, heads: int) -> nn.Module:
            return dgl.nn.GATConv(i, o, heads, allow_zero_in_degree=True)
    else:
        from torch_geometric.nn import GATConv, SAGEConv

        def sage(i: int, o: int) -> nn.Module:
            return SAGEConv(i, o)

        def gat(i: int, o: int, heads: int) -> nn.Module:
            return PerHead(GATConv(i, o, heads, add_self_loops=False), heads)

    if name == "sage":
        return SAGE(n_features, n_classes, norm, sage)
    return GAT(n_features, n_classes, WIDTHS[name], gat)


class PerHead(nn.Module):
    """PyG's attention gives heads side by side; here they are a dimension, as DGL has it."""

    def __init__(self, layer: nn.Module, heads: int) -> None:
        super().__init__()
        self.layer, self.heads = layer, heads

    def forward(self, x, edges):
        return self.layer(x, edges).view(x.shape[0], self.heads, -1)


class Training:
    """One replica with its optimizer. ``convolve(layer, h)`` applies a layer on the graph; ``gather`` sums gradients
    over workers."""

    def __init__(
        self, name, library, convolve, features, labels, mask, n_classes, n_train, norm, sync=None, gather=None
    ) -> None:
        torch.manual_seed(0)
        self.convolve, self.features, self.gather = convolve, features, gather
        self.rows = mask.nonzero().view(-1)
        self.labels = labels[self.rows]
        self.n_train = n_train
        self.model = make(name, library, features.shape[1], n_classes, norm)
        if sync is not None:
            sync(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def epoch(self) -> float:
        """Forward, backward, step. Returns this worker's part of the loss."""
        logits = self.model(self.convolve, self.features)
        loss = F.cross_entropy(logits[self.rows], self.labels, reduction="sum") / self.n_train
        self.optimizer.zero_grad()
        loss.backward()
        if self.gather is not None:
            self.gather(self.model)
        self.optimizer.step()
        return loss.item()


def on_graph(graph):
    """Layers of DGL take the graph first."""
    return lambda layer, h: layer(graph, h)


def on_edges(edges):
    """Layers of PyG take edges after the features."""
    return lambda layer, h: layer(h, edges)


def warm_up(name: str) -> None:
    """Trains on a small random graph, so that torch and DGL have loaded what they load late."""
    n, degree = 2000, 10
    ends = torch.randint(0, n, (2, n * degree), dtype=torch.int32)
    graph = dgl.graph((ends[0], ends[1]), num_nodes=n)
    mask = torch.ones(n, dtype=torch.bool)
    features, labels = torch.randn(n, 100), torch.randint(0, 47, (n,))
    training = Training(name, "dgl", on_graph(graph), features, labels, mask, 47, n, nn.BatchNorm1d)
    for _ in range(2):
        training.epoch()
