"""Training that goes on from its last checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import sar


def train(parts: Path, epochs: int) -> nn.Module:
    graph = sar.load(parts)
    features, labels = graph.ndata["features"].float(), graph.ndata["labels"]
    model = sar.remat(sar.nn.GraphConv(features.shape[1], graph.num_classes))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    best = 0.0
    with sar.Checkpointer(
        "run", model, {"optimizer": optimizer, "schedule": schedule}, graph=graph, every=10
    ) as checkpoints:
        for epoch in range(checkpoints.load(), epochs):
            loss = F.cross_entropy(model(graph, features), labels, reduction="sum") / graph.num_nodes_global()
            optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(model)
            optimizer.step()
            schedule.step()
            if checkpoints.step(epoch + 1, extra={"best": best}):
                print(f"saved after epoch {epoch}")
    sar.save_checkpoint("last", model, optimizer, step=epochs, graph=graph)
    found = sar.load_checkpoint("last", model, graph=graph)
    if found is not None:
        print(found.step, found.path, found.extra)
    return model


if __name__ == "__main__":
    sar.initialize_comms()
    try:
        train(Path("parts"), 100)
    except sar.PeerLostError as error:
        print(f"rank {error.rank} is gone")
