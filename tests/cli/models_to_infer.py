"""Models that ``sar infer`` and ``sar evaluate`` are tried with."""

from __future__ import annotations

import os
from typing import Any

import dgl
import torch.nn.functional as F
from torch import Tensor, nn

import sar

FEATURES, CLASSES = 12, 4


class Net(nn.Module):
    """Two convolutions with batch norm, ReLU and dropout between them."""

    def __init__(self, kind: str, hidden: int) -> None:
        super().__init__()
        self.kind = kind
        if kind == "gat":
            self.first = dgl.nn.GATConv(FEATURES, hidden // 4, 4, attn_drop=0.5)
            self.second = dgl.nn.GATConv(hidden, CLASSES, 1)
        elif kind == "gcn":
            self.first = dgl.nn.GraphConv(FEATURES, hidden)
            self.second = dgl.nn.GraphConv(hidden, CLASSES)
        else:
            self.first = dgl.nn.SAGEConv(FEATURES, hidden, "mean", feat_drop=0.5)
            self.second = dgl.nn.SAGEConv(hidden, CLASSES, "mean")
        self.norm = nn.BatchNorm1d(hidden)
        self.dropout = nn.Dropout(0.5)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        x = self.dropout(F.relu(self.norm(self.first(graph, x).flatten(1))))
        return self.second(graph, x).flatten(1)


def build(kind: str = "sage", hidden: int = 16) -> nn.Module:
    return Net(kind, hidden)


def not_a_model() -> str:
    return "model"


def fails_on_one() -> nn.Module:
    if os.environ["RANK"] == "1":
        raise ValueError("no model on this rank")
    return build()


class OneRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(FEATURES, CLASSES)

    def forward(self, graph: Any, x: Tensor) -> Any:
        return self.lin(x)[:1] if sar.rank() else self.lin(x)


def one_row() -> nn.Module:
    return OneRow()
