"""Models of PyG that ``sar infer`` and ``sar evaluate`` are tried with."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import sar
from tests.support.hetero import KINDS, TRIPLES
from tests.support.worker import numpy

FEATURES, CLASSES = 12, 4


def build(kind: str = "gat") -> nn.Module:
    """Models as PyG has them, with batch norm, dropout and layers put together."""
    import torch_geometric.nn as pyg

    made: nn.Module
    if kind == "gat":
        made = pyg.GAT(FEATURES, 16, 2, CLASSES, dropout=0.5, norm="batch_norm", heads=4)
    elif kind == "sage":
        made = pyg.GraphSAGE(FEATURES, 16, 3, CLASSES, jk="cat")
    else:
        made = pyg.GIN(FEATURES, 16, 2, CLASSES)
    return made


def heterogeneous() -> nn.Module:
    import torch_geometric.nn as pyg

    made: nn.Module = pyg.HGTConv(FEATURES, 16, (list(KINDS), TRIPLES), heads=4)
    return made


def trained(path: str, folder: str, epochs: tuple[int, int]) -> dict[str, Any]:
    """Parameters and buffers after some epochs; a checkpoint at the end of the first run, loaded by the next."""
    data = sar.pyg.load(path)
    torch.manual_seed(2)
    model = sar.convert_batchnorm(build("gat"))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sar.sync_params(model)
    begin, end = epochs
    if begin:
        sar.load_checkpoint(folder, model, optimizer)
    for _ in range(begin, end):
        out = model(data.x, data.edge_index)
        loss = F.cross_entropy(out, data.y, reduction="sum") / 100
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
    if not begin and end == 2:
        sar.save_checkpoint(folder, model, optimizer, step=end)
    found: dict[str, Any] = numpy(dict(model.state_dict()))
    return found
