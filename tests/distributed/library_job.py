"""A worker of a short training that says what it ended with: ``python -m tests.distributed.library_job [HOW]``."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading

import torch

import sar
from tests.lifecycle.steps import report, ring


def main(how: str) -> None:
    sar.initialize_comms()
    rank, world = sar.rank(), sar.world_size()
    torch.manual_seed(rank)
    graph = ring(rank, world)
    x = torch.randn(graph.num_nodes(), 64)
    target = torch.randn(graph.num_nodes(), 8)
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([sar.nn.SAGEConv(64, 300, "mean"), sar.nn.GATConv(300, 8, 1)])
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
    if how == "killed" and rank == 1:
        threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    for _ in range(10**9 if how == "killed" else 4):
        out = layers[1](graph, torch.relu(layers[0](graph, x))).flatten(1)
        loss = (out - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(layers)
        optimizer.step()
    digest = hashlib.sha256(out.detach().numpy().tobytes())
    for parameter in layers.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    used = sorted({peer["transport"] for peer in sar.stats()["peers"] if peer["rank"] != rank})
    report(rank=rank, digest=digest.hexdigest(), used=used)
    sar.comm.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
