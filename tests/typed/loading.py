"""What sar.load gives, as type checkers see it: of DGL's road and of PyG's."""

from __future__ import annotations

import os
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

import sar
import sar.nn


def of_graph(path: Path) -> Tensor:
    graph = sar.load(path)
    features, labels, train = graph.ndata["features"].float(), graph.ndata["labels"], graph.ndata["train_mask"]
    model = sar.nn.SAGEConv(features.shape[1], graph.num_classes, "mean")
    logits: Tensor = model(graph, features)
    loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / graph.total("train_mask")
    rows: int = graph.nodes["paper"].data["features"].shape[0] + graph.edata["w"].shape[0]
    print(graph.total(loss), graph.total(rows), graph.num_classes.bit_length(), graph.local_var().total("labels").hex())
    if isinstance(graph, sar.HeteroGraphShardManager):
        by_type: dict[str, Tensor] = graph.ndata["features"]
        print(by_type)
    return loss


def of_pyg(path: str | os.PathLike[str]) -> Tensor:
    data = sar.load(path, pyg=True)
    x: Tensor = data.x
    print(data.num_classes.bit_length(), data.total("train_mask").hex(), data.total(x).hex())
    again = sar.pyg.load(path)
    return F.cross_entropy(x, again.y, reduction="sum") / again.total(again.train_mask)


def prepared(path: Path) -> list[int]:
    data, graph = sar.load(path, pyg=True), sar.load(path)
    model: sar.nn.SAGEConv = sar.prepare(sar.nn.SAGEConv(4, 4, "mean"), graph)
    again: sar.nn.SAGEConv = sar.restore(sar.prepare(model, data))
    print(sar.describe(again)[0].why.upper())
    return [one.sends or 0 for one in sar.describe(model) if one.became == "fused"]
