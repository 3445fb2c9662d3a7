"""What runs on the workers to keep a log."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F

import sar
import sar.nn
from tests.support.worker import build, refusal


def trained(folder: str, part: dict[str, Any], epochs: int, logging: list[int], **settings: str) -> list[float]:
    """Trains a layer on some numbers; only some ranks keep a log. The losses."""
    graph = build(part)
    torch.manual_seed(0)
    x = torch.randn(graph.num_nodes(), 8)
    layer = sar.nn.SAGEConv(8, 3, "mean")
    sar.sync_params(layer)
    log = sar.RunLog(folder, lr=0.01, **settings) if sar.rank() in logging else None
    losses = []
    for epoch in range(1, epochs + 1):
        loss = F.mse_loss(layer(graph, x), torch.zeros(len(x), 3), reduction="sum")
        layer.zero_grad()
        if log is not None:
            with log.phase("backward <&>"):
                loss.backward()
        else:
            loss.backward()
        sar.gather_grads(layer)
        losses.append(float(loss))
        if log is not None:
            log.epoch(epoch, loss=loss, accuracy={"train": epoch / 10, "test": float("nan")})
    if log is not None:
        log.close()
    return losses


def wrong(folder: str) -> list[str]:
    said = []
    with sar.RunLog(folder) as log:
        for value in ("text", torch.zeros(2), {"a": None}):
            said.append(refusal(functools.partial(log.epoch, 1, loss=value)))
    try:
        with sar.RunLog(folder):
            raise ValueError("it broke <b>")
    except ValueError:
        pass
    return said
