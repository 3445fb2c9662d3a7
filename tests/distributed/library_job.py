"""A worker of short trainings that says what each ended with: ``python -m tests.distributed.library_job WAY...``.

A way is a transport, with what UCX may use: ``tcp``, ``ucx:tcp,self``; ``mpi:killed`` ends when rank 1 is killed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading

import torch

import sar
from tests.lifecycle.steps import report, ring


def train(transport: str, detail: str) -> None:
    os.environ["SAR_TRANSPORT"] = transport
    if transport == "ucx":
        os.environ["UCX_TLS"] = detail  # UCX reads it when a session opens
    sar.initialize_comms()
    rank, world = sar.rank(), sar.world_size()
    torch.manual_seed(rank)
    graph = ring(rank, world)
    x = torch.randn(graph.num_nodes(), 64)
    target = torch.randn(graph.num_nodes(), 8)
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([sar.nn.SAGEConv(64, 300, "mean"), sar.nn.GATConv(300, 8, 1)])
    killed = detail == "killed"
    if killed and rank == 1:
        threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    for _ in range(10**9 if killed else 4):
        out = layers[1](graph, torch.relu(layers[0](graph, x))).flatten(1)
        loss = (out - target).square().mean()
        layers.zero_grad()
        loss.backward()
        sar.gather_grads(layers)
        with torch.no_grad():  # torch's optimizers import its compiler, which takes a second
            for parameter in layers.parameters():
                parameter -= 0.01 * parameter.grad
    digest = hashlib.sha256(out.detach().numpy().tobytes())
    for parameter in layers.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    used = sorted({peer["transport"] for peer in sar.stats()["peers"] if peer["rank"] != rank})
    report(rank=rank, digest=digest.hexdigest(), used=used)
    sar.comm.shutdown()


if __name__ == "__main__":
    for way in sys.argv[1:]:
        train(*(way + ":").split(":")[:2])
