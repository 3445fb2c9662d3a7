"""What runs on the workers to compare memory with what was predicted."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import sar
import sar.nn
from sar.cli.resident import reset_peak, resident
from tests.support.worker import build, settings


class SAGE(nn.Module):
    def __init__(self, widths: list[int], dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList([sar.nn.SAGEConv(i, o, "mean") for i, o in zip(widths, widths[1:])])
        self.norms = nn.ModuleList([sar.DistributedBN1D(w) for w in widths[1:-1]])

    def forward(self, graph: Any, h: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms):
            h = F.dropout(F.relu(norm(layer(graph, h))), self.dropout)
        return self.layers[-1](graph, h)


def growth(part: dict[str, Any], rows: int, widths: list[int], dropout: float, autocast: bool = False) -> int:
    """Bytes by which the resident size grows at most while training, after one step on something small."""

    def train(graph: Any, x: torch.Tensor, steps: int) -> None:
        model = SAGE(widths, dropout)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                out = model(graph, x)
            loss = out.square().sum()
            optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(model)
            optimizer.step()

    sar.set_allocator("pool")
    world = sar.world_size()
    tiny = {
        "start": np.arange(world + 1, dtype=np.int64),
        "src": np.zeros(1, np.int64),
        "dst": np.full(1, sar.rank(), np.int64),
    }
    dtype = torch.bfloat16 if autocast else torch.float32
    train(build(tiny), torch.randn(1, widths[0]).to(dtype), 2)
    graph = build(part)
    x = torch.randn(rows, widths[0], dtype=dtype)  # not of another, which the pool would keep
    gc.collect()
    sar.comm.barrier()
    reset_peak()
    before = resident()["now"]
    train(graph, x, 2)
    return int(resident()["peak"] - before)


def traffic(part: dict[str, Any], rows: int, kind: str, widths: list[int], autocast: bool = False) -> dict[str, int]:
    """Bytes that aggregation sends in one training step, headers aside, and boundary rows read."""
    heads = 2
    graph = build(part)

    def layer(i: int, o: int) -> nn.Module:
        if kind.startswith("sage"):
            return sar.nn.SAGEConv(i, o, kind.partition("-")[2] or "mean")
        options = {"merge": "flatten", "memory_efficient": True} if kind == "gat-flatten" else {}
        return sar.nn.GATConv(i, o // heads, heads, allow_zero_in_degree=True, **options)

    layers = nn.ModuleList([layer(i, o) for i, o in zip(widths, widths[1:])])

    def sent() -> int:
        return sum(link["sent_payload"] for link in sar.stats()["links"] if link["communicator"] == "train")

    def step() -> None:
        h = torch.randn(rows, widths[0])
        h = h.bfloat16() if autocast else h
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            for one in layers:
                h = one(graph, h).flatten(1)
        h.sum().backward()

    with settings(exchange="pull"):  # what plans count where no cover is known
        step()  # what is made with the first step has been made
        sar.comm.barrier()
        before = sent()
        step()
        after = sent()
        sar.comm.barrier()
    boundary = {int(n) for n in part["src"] if not part["start"][sar.rank()] <= n < part["start"][sar.rank() + 1]}
    return {"sent": after - before, "boundary": len(boundary), "edges": len(part["src"])}
