"""The models of the epoch benchmark, for all peers alike: 3 layers of SAGE (mean, 256 hidden, batch norm between) or of
GAT (4 heads of 32 or of 128, ELU between, heads of the last layer averaged)."""

from __future__ import annotations

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import sar
import sar.nn
from net import HEADS, HIDDEN, WIDTHS, Block, Net, hidden

MODELS = ("sage", *WIDTHS)
WAYS = {
    "plain": "dgl.nn, as they are",
    "prepared": "dgl.nn, after sar.prepare",
    "act": "dgl.nn, and BatchNormAct with reuse_input=True in place of batch norm and ReLU",
    "remat": "dgl.nn and BatchNormAct, hidden layers under sar.remat",
    "nn": "sar.nn and BatchNormAct, hidden layers under sar.remat",
    "efficient": "sar.nn, GATConv with memory_efficient=True; GAT alone",
    "sa": "dgl.nn, what forward fetched is kept",
    "one_shot": "dgl.nn on all boundary rows at once",
    "pyg": "torch_geometric.nn on sar.pyg's edge index",
    "pyg_act": "the same, and BatchNormAct as in act",
    "pyg_prepared": "the same, after sar.prepare",
    "as_pyg": "what torch_geometric.nn does, by DGL's functions",
}


def make(name: str, library: str, n_features: int, n_classes: int, norm, way: str = "plain") -> nn.Module:
    """A model of ``library``'s layers: ``"dgl"`` or ``"pyg"``; SAR uses both. ``way`` is that of WAYS."""
    if library == "pyg" or way == "as_pyg":
        import pyg_model

        return pyg_model.make(name, library, n_features, n_classes, norm_act if way == "pyg_act" else norm)
    layers = sar.nn if way == "nn" else dgl.nn

    def sage(i: int, o: int) -> nn.Module:
        return layers.SAGEConv(i, o, "mean")

    def gat(i: int, o: int) -> nn.Module:
        return layers.GATConv(i, o, HEADS, allow_zero_in_degree=True)

    def lean_gat(i: int, o: int, merge: str, activation=None) -> nn.Module:
        options = {"activation": activation, "merge": merge, "memory_efficient": True}
        return sar.nn.GATConv(i, o, HEADS, allow_zero_in_degree=True, **options)

    if name == "sage":
        widths = [n_features, HIDDEN, HIDDEN, n_classes]
        convolutions = [sage(i, o) for i, o in zip(widths, widths[1:])]
        if way in ("act", "remat", "nn"):
            norm = norm_act
        blocks = [hidden(layer, norm(HIDDEN)) for layer in convolutions[:-1]]
    elif way == "efficient":
        widths = [n_features, HEADS * WIDTHS[name], HEADS * WIDTHS[name]]
        blocks = [Block(lean_gat(i, WIDTHS[name], "flatten", F.elu)) for i in widths[:-1]]
        convolutions = [lean_gat(widths[-1], n_classes, "mean")]
    else:
        width = WIDTHS[name]
        convolutions = [gat(i, o) for i, o in ((n_features, width), (HEADS * width, width), (HEADS * width, n_classes))]
        blocks = [Block(layer, None, F.elu) for layer in convolutions[:-1]]
    blocks.append(Block(convolutions[-1]))
    if way in ("remat", "nn"):
        blocks = [sar.remat(block) for block in blocks[:-1]] + blocks[-1:]
    return Net(blocks)


def norm_act(width: int) -> nn.Module:
    return sar.nn.BatchNormAct(width, "relu", reuse_input=True)


class Training:
    """One replica with its optimizer. ``convolve(layer, h)`` applies a layer on the graph; ``gather`` sums gradients
    over workers."""

    def __init__(
        self,
        name,
        library,
        convolve,
        features,
        labels,
        mask,
        n_classes,
        n_train,
        norm,
        sync=None,
        gather=None,
        way="plain",
    ) -> None:
        torch.manual_seed(0)
        self.convolve, self.features, self.gather = convolve, features, gather
        self.rows = mask.nonzero().view(-1)
        self.labels = labels[self.rows]
        self.n_train = n_train
        self.model = make(name, library, features.shape[1], n_classes, norm, way)
        if sync is not None:
            sync(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    autocast = False

    def epoch(self) -> float:
        """Forward, backward, step. Returns this worker's part of the loss."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
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


def warm_up(name: str, autocast: bool = False) -> None:
    """Trains on a small random graph, so that torch and DGL have loaded what they load late. ``autocast``: in bfloat16,
    which DGL's GAT refuses."""
    n, degree = 2000, 10
    ends = torch.randint(0, n, (2, n * degree), dtype=torch.int32)
    graph = dgl.graph((ends[0], ends[1]), num_nodes=n)
    mask = torch.ones(n, dtype=torch.bool)
    features, labels = torch.randn(n, 100), torch.randint(0, 47, (n,))
    training = Training(name, "dgl", on_graph(graph), features, labels, mask, 47, n, nn.BatchNorm1d)
    training.autocast = autocast
    for _ in range(2):
        training.epoch()
