"""The log of a run, a timeline of some epochs, and where the engine's time goes."""

from __future__ import annotations

import torch

import sar
import sar.nn

sar.initialize_comms()
graph = sar.load("parts")
x = graph.ndata["features"].float()
layer = sar.nn.RelGraphConv(x.shape[1], 8, 3)
kinds = torch.zeros(graph.num_edges(), dtype=torch.int64)
with sar.RunLog("log", lr=0.01, layers=[8]) as log:
    for epoch in range(3):
        with log.phase("forward"):
            loss = layer(graph, x, kinds).square().sum()
        with log.phase("backward"):
            loss.backward()
        log.epoch(epoch, of=2, loss=loss, accuracy={"train": 0.5})
with sar.trace("trace.json", torch_ops=False), sar.engine_profile("profile.pb.gz"):
    sar.memoize(x)
    print(layer(graph, x, kinds).shape)
sar.clear_memoized()
