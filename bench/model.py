"""The model of the epoch benchmark, for DGL and SAR alike: 3 layers of SAGEConv (mean), batch norm between them."""

from __future__ import annotations

import dgl
import torch
import torch.nn.functional as F
from torch import nn

HIDDEN = 256


class SAGE(nn.Module):
    """``norm(n)`` makes a batch norm of n features."""

    def __init__(self, n_features: int, n_classes: int, norm) -> None:
        super().__init__()
        widths = [n_features, HIDDEN, HIDDEN, n_classes]
        self.layers = nn.ModuleList([dgl.nn.SAGEConv(i, o, "mean") for i, o in zip(widths, widths[1:])])
        self.norms = nn.ModuleList([norm(HIDDEN) for _ in range(2)])

    def forward(self, graph, h):
        for layer, norm in zip(self.layers, self.norms):
            h = F.relu(norm(layer(graph, h)))
        return self.layers[-1](graph, h)


class Training:
    """One replica with its optimizer. ``graph`` is DGL's or SAR's; ``gather`` sums gradients over workers."""

    def __init__(self, graph, features, labels, mask, n_classes, n_train, norm, sync=None, gather=None) -> None:
        torch.manual_seed(0)
        self.graph, self.features, self.gather = graph, features, gather
        self.rows = mask.nonzero().view(-1)
        self.labels = labels[self.rows]
        self.n_train = n_train
        self.model = SAGE(features.shape[1], n_classes, norm)
        if sync is not None:
            sync(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def epoch(self) -> float:
        """Forward, backward, step. Returns this worker's part of the loss."""
        logits = self.model(self.graph, self.features)
        loss = F.cross_entropy(logits[self.rows], self.labels, reduction="sum") / self.n_train
        self.optimizer.zero_grad()
        loss.backward()
        if self.gather is not None:
            self.gather(self.model)
        self.optimizer.step()
        return loss.item()


def warm_up() -> None:
    """Trains on a small random graph, so that torch and DGL have loaded what they load late."""
    n, degree = 2000, 10
    ends = torch.randint(0, n, (2, n * degree), dtype=torch.int32)
    graph = dgl.graph((ends[0], ends[1]), num_nodes=n)
    mask = torch.ones(n, dtype=torch.bool)
    training = Training(graph, torch.randn(n, 100), torch.randint(0, 47, (n,)), mask, 47, n, nn.BatchNorm1d)
    for _ in range(2):
        training.epoch()
