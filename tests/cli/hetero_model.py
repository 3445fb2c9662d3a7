"""A model on papers and authors, and a script that trains it and writes what it computes for both."""

from __future__ import annotations

import os
from typing import Any

import dgl
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

import sar

WIDTHS, CLASSES = {"paper": 6, "author": 3}, 3
RELATIONS = ("cites", "wrote", "written by")


class Net(nn.Module):
    """Two layers, each of a mean for each relation and a linear map of the node itself."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.enter = nn.ModuleDict({t: nn.Linear(width, hidden) for t, width in WIDTHS.items()})
        self.convs = nn.ModuleList()
        self.own = nn.ModuleList()
        for out in (hidden, CLASSES):
            means = {r: dgl.nn.GraphConv(hidden, out, norm="right") for r in RELATIONS}
            self.convs.append(dgl.nn.HeteroGraphConv(means))
            self.own.append(nn.ModuleDict({t: nn.Linear(hidden, out) for t in WIDTHS}))

    def forward(self, graph: Any, x: dict[str, Tensor]) -> dict[str, Tensor]:
        x = {t: enter(x[t]) for t, enter in self.enter.items()}
        for conv, own in zip(self.convs, self.own):
            x = {t: own[t](F.relu(x[t])) + mean for t, mean in conv(graph, x).items()}
        return x


def build(hidden: int = 8) -> nn.Module:
    return Net(hidden)


def train(parts: str, out: str) -> None:
    """What a worker does."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"])
    sar.initialize_comms(rank, world_size, os.environ["MASTER_ADDR"], "sar", master_port_number=port)
    data = sar.load_dgl_partition_data(parts, rank)
    graph = sar.construct_full_graph(data)
    x = {t: sar.suffix_key_lookup(data.node_features, f"{t}/features") for t in WIDTHS}
    labels = sar.suffix_key_lookup(data.node_features, "paper/labels")
    mask = sar.suffix_key_lookup(data.node_features, "paper/train_mask").bool()
    count = torch.tensor(float(mask.sum()))
    sar.comm.all_reduce(count)
    torch.manual_seed(0)
    model = build()
    sar.sync_params(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(8):
        loss = F.cross_entropy(model(graph, x)["paper"][mask], labels[mask], reduction="sum") / count
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        found = loss.detach()
        sar.comm.all_reduce(found)
        losses.append(float(found))
    assert losses[-1] < 0.9 * losses[0], losses
    with torch.no_grad():
        for kind, rows in model.eval()(graph, x).items():
            sar.write_rows(f"{out}/{kind}.parquet", rows, graph, kind)
    if rank == 0:
        save_file(model.state_dict(), f"{out}/model.safetensors")


if __name__ == "__main__":
    import sys

    train(*sys.argv[1:])
