"""A script with a type for every name, as ``mypy --strict`` and pyright want it."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sar
import sar.nn
from sar import Config, PeerLostError, construct_full_graph
from sar.function import copy_u, mean


class Net(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first = sar.nn.SAGEConv(width, 16, "mean")
        self.norm = sar.DistributedBN1D(16)
        self.second = sar.nn.SAGEConv(16, classes, "mean")

    def forward(self, graph: sar.GraphShardManager, x: Tensor) -> Tensor:
        h: Tensor = F.relu(self.norm(self.first(graph, x)))
        out: Tensor = self.second(graph, h)
        return out


def means(graph: sar.GraphShardManager, x: Tensor) -> Tensor:
    with graph.local_scope():
        graph.ndata["x"] = x
        graph.update_all(copy_u("x", "m"), mean("m", "h"))
        found: Tensor = graph.ndata["h"]
    return found


def train(parts: Path, epochs: int, report: Callable[[str], None] = print) -> nn.Module:
    sar.Config.exchange = "push"
    Config.window_bytes = 8 << 20
    sar.initialize_comms()
    data = sar.load_dgl_partition_data(str(parts), sar.rank())
    graph = construct_full_graph(data)
    features = sar.suffix_key_lookup(data.node_features, "features")
    labels = sar.suffix_key_lookup(data.node_features, "labels")
    count = torch.tensor(len(labels))
    sar.comm.all_reduce(count)
    model = Net(features.shape[1], 7)
    sar.sync_params(model)
    optimizer = torch.optim.Adam(model.parameters())
    with sar.Checkpointer("run", model, optimizer, graph=graph, every=10) as checkpoints:
        for epoch in range(checkpoints.load(), epochs):
            loss = F.cross_entropy(model(graph, means(graph, features)), labels, reduction="sum") / count
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            sar.gather_grads(model)
            optimizer.step()
            report(f"{epoch}: {loss.item()}, window {sar.stats()['window']}")
            checkpoints.step(epoch + 1)
    sar.write_rows("out.npy", model(graph, features).detach(), graph)
    edges: Tensor = sar.pyg.edge_index(graph)
    report(f"{edges.shape}, {sar.memory_stats()['total']['peak']} bytes")
    return model


def main() -> None:
    made = sar.ingest({"edges": {"file": "edges.csv"}}, "graph", symmetrize=True, memory="1GiB")
    print(made)
    try:
        train(Path("parts/graph.json"), 10)
    except PeerLostError as error:
        print(error.rank)


if __name__ == "__main__":
    main()
