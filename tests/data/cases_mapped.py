"""Training on features that some workers map and others read, on a worker."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F

import sar
from sar.autograd.fused import row_blocks
from tests.support.worker import refusal, settings


def load(json_file: str, rank: int, mapped: bool) -> Any:
    """Partition data with features where ``mapped`` says."""
    with settings(features="mapped" if mapped else "memory"):
        return sar.load_dgl_partition_data(json_file, rank)


def layer(model: str, library: str, into: int, out: int) -> torch.nn.Module:
    if library == "dgl":
        import dgl.nn as nn
    else:
        import sar.nn as nn  # type: ignore[no-redef]
    if model == "gat":
        return nn.GATConv(into, out, 1, allow_zero_in_degree=True)
    if model == "gcn":
        return nn.GraphConv(into, out, allow_zero_in_degree=True)
    return nn.SAGEConv(into, out, model)


def _sent() -> int:
    return sum(link["sent_payload"] for link in sar.stats()["links"] if link["communicator"] == "train")


def train(json_file: str, mapped: list[bool], model: str, library: str, dtype: str, width: int) -> dict[str, Any]:
    """Two epochs of two layers, in blocks of a few rows: losses and parameters to the bit, and bytes sent."""
    units = row_blocks.UNIT, row_blocks.MOST
    row_blocks.UNIT, row_blocks.MOST = 2, 4
    try:
        data = load(json_file, sar.rank(), mapped[sar.rank()])
        graph = sar.construct_full_graph(data)
        x = next(t for name, t in data.node_features.items() if name.startswith("_N/features"))
        y = data.node_features["_N/labels"]
        before, sent = sar.memory_stats()["mapped"]["live"], _sent()
        torch.manual_seed(3)
        layers = torch.nn.ModuleList([layer(model, library, x.shape[1], width), layer(model, library, width, 4)]).to(
            getattr(torch, dtype)
        )
        sar.sync_params(layers)
        optimizer = torch.optim.SGD(layers.parameters(), 0.5)
        losses = []
        for _ in range(2):
            h = F.relu(layers[0](graph, x).flatten(1))
            loss = F.cross_entropy(layers[1](graph, h).flatten(1), y, reduction="sum") / graph.num_nodes_global()
            optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(layers)
            optimizer.step()
            losses.append(loss.item().hex())
        del x, data
        return {
            "losses": losses,
            "parameters": [p.detach().numpy().tobytes() for p in layers.parameters()],
            "sent": _sent() - sent,
            "mapped": before,
            "left": sar.memory_stats()["mapped"]["live"],
        }
    finally:
        row_blocks.UNIT, row_blocks.MOST = units


def cut_off(json_file: str, file: str) -> str:
    """What a layer says whose features were made shorter since they were loaded."""
    data = load(json_file, 0, True)
    graph = sar.construct_full_graph(data)
    x = next(t for name, t in data.node_features.items() if name.startswith("_N/features"))
    os.truncate(file, 100)
    return refusal(lambda: layer("mean", "sar", x.shape[1], 2)(graph, x))


def hetero(json_file: str, mapped: list[bool]) -> list[bytes]:
    """Linear maps and sums of the features of each type, to the bit."""
    fn = sar.function
    data = load(json_file, sar.rank(), mapped[sar.rank()])
    graph = sar.construct_full_graph(data)
    found = []
    for source, relation, target in graph.canonical_etypes:
        name = f"{source}/features"
        if name not in data.node_features:
            continue
        x = data.node_features[name]
        torch.manual_seed(4)
        weight = torch.randn(x.shape[1], 2, dtype=x.dtype, requires_grad=True)
        with graph.local_scope():
            one = graph[source, relation, target]
            one.srcdata["h"] = x @ weight
            one.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
            out = one.dstdata["out"]
        out.sum().backward()
        found += [out.detach().numpy().tobytes(), weight.grad.numpy().tobytes()]
    return found
