"""What runs on the workers to see what inference holds."""

from __future__ import annotations

import gc
import os
import tempfile
from typing import Any

import dgl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sar
from sar._engine import library
from sar.autograd.fused import low_memory
from sar.autograd.fused.deferred import computed
from sar.inference import forward, metrics
from sar.inference.model import Built
from sar.inference.pointwise import Pointwise
from tests.support.worker import build


class Net(nn.Module):
    """Three layers of one width, with batch norm, ReLU and dropout."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        if kind == "gat":
            self.layers = nn.ModuleList(
                dgl.nn.GATConv(width, width // 4, 4, allow_zero_in_degree=True) for _ in range(3)
            )
        elif kind == "gcn":
            self.layers = nn.ModuleList(dgl.nn.GraphConv(width, width, allow_zero_in_degree=True) for _ in range(3))
        else:
            self.layers = nn.ModuleList(dgl.nn.SAGEConv(width, width, "mean") for _ in range(3))
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(0.5)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.dropout(F.relu(self.norm(layer(graph, x).flatten(1))))
        return x


def held(part: dict[str, Any], rows: int, width: int, kind: str) -> tuple[int, float]:
    """Bytes of tensors that come on top while a model runs, and the largest difference from running it plainly."""
    graph = build(part)
    torch.manual_seed(1)
    model = Net(kind, width).eval()
    x = torch.randn(rows, width)
    with torch.no_grad():
        expected = model(graph, x)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.pt")
        torch.save(x, path)
        del x
        columns = {"_N/features": low_memory.reread((rows, width), torch.float32, lambda: torch.load(path))}
        gc.collect()
        sar.set_allocator("pool")
        sar.comm.barrier()
        library.call("sar_reset_peaks")
        before = sar.memory_stats()["tensors"]["live"]
        out = computed(forward.run(Built(model, None), graph, columns, ["_N"], "features", None))
        peak = sar.memory_stats()["tensors"]["peak"]
    return peak - before, float((out - expected).abs().max())


def shared() -> dict[str, bool]:
    """Whether tensors that are read again have their values still."""
    x = torch.randn(600, 600)
    with torch.no_grad(), low_memory.inference(), Pointwise():
        y = x * 2
        first = F.relu(y)
        second = torch.sigmoid(first)
        third = F.elu(y[:500])
        plain = [computed(t).clone() for t in (second, first, third)]
        alone = F.relu(x * 3)
        kept = computed(alone)
    return {
        "first": torch.equal(plain[1], (x * 2).relu()),
        "second": torch.allclose(plain[0], (x * 2).relu().sigmoid()),
        "view": torch.allclose(plain[2], F.elu((x * 2)[:500])),
        "input": torch.equal(y, x * 2),
        "kept": torch.equal(kept, (x * 3).relu()),
    }


def reread() -> tuple[list[int], bool, bool]:
    """How often values were read after each use, and what they were."""
    count = [0]

    def read() -> Tensor:
        count[0] += 1
        return torch.ones(4, 3)

    x = low_memory.reread((4, 3), torch.float32, read)
    said = []
    with torch.no_grad():
        held = computed(x)
        said.append(count[0])
        same = torch.equal(x + 1, held + 1)
        said.append(count[0])
        del held
        total = float((x * 2).sum())
        said.append(count[0])
        x.add_(1)
        changed = bool((x == 2).all())
    return said, same and total == 24, changed


def evaluated(logits: Any, labels: Any, masks: dict[str, Any], wanted: list[str]) -> dict[str, dict[str, Any]]:
    """Metrics of the rows that this rank has."""
    splits = {name: torch.from_numpy(mask) for name, mask in masks.items()}
    return metrics.evaluate(torch.from_numpy(logits), torch.from_numpy(labels), splits, wanted)
