"""Trains the model of billion.py: two layers of SAGE.

sar launch -n 4 billion_train.py PARTS.json CHECKPOINT EPOCHS
"""

import os
import sys
import time

import dgl
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import sar

FEATURES, HIDDEN, CLASSES = 32, 16, 16


class SAGE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = dgl.nn.SAGEConv(FEATURES, HIDDEN, "mean")
        self.second = dgl.nn.SAGEConv(HIDDEN, CLASSES, "mean")

    def forward(self, graph, x):
        return self.second(graph, F.relu(self.first(graph, x)))


def build() -> nn.Module:
    """The model, for `sar infer`."""
    return SAGE()


def main(path: str, checkpoint: str, epochs: int) -> None:
    sar.initialize_comms(
        int(os.environ["RANK"]),
        int(os.environ["WORLD_SIZE"]),
        os.environ["MASTER_ADDR"],
        "sar",
        master_port_number=int(os.environ["MASTER_PORT"]),
    )
    begin = time.perf_counter()
    data = sar.load_dgl_partition_data(path, sar.rank(), torch.device("cpu"))
    graph = sar.construct_full_graph(data)
    found = {name: sar.suffix_key_lookup(data.node_features, name) for name in ("features", "labels", "train_mask")}
    x, labels, mask = found["features"], found["labels"].long(), found["train_mask"].bool()
    count = torch.tensor([mask.sum()], dtype=torch.float64)
    sar.comm.all_reduce(count)
    torch.manual_seed(0)
    model = SAGE()
    sar.sync_params(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if sar.rank() == 0:
        print(f"loaded and constructed: {time.perf_counter() - begin:.1f} s", flush=True)
    for epoch in range(1, epochs + 1):
        begin = time.perf_counter()
        loss = F.cross_entropy(model(graph, x)[mask], labels[mask], reduction="sum") / count.item()
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        total = loss.detach().double().reshape(1)
        sar.comm.all_reduce(total)
        if sar.rank() == 0:
            took = f"{time.perf_counter() - begin:.1f} s, peak {sar.memory_stats()['total']['peak'] / 2**30:.2f} GiB"
            print(f"epoch {epoch}: loss {total.item():.4f}, {took}", flush=True)
    if sar.rank() == 0:
        save_file(model.state_dict(), checkpoint)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
