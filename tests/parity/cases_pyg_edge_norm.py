"""Batch norm, counters and wide layers inside messages, the same code for PyG and for the workers; and messages that
look at several edges."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable

import numpy as np
import torch
from torch import nn

import sar
from tests.parity.cases_pyg import graph_index
from tests.parity.pyg_specs import mlp, pyg_nn
from tests.support.worker import default_dtype, numpy, random_layer, refusal


class Counting(nn.Module):
    """A layer whose message counts, and adds up what it sees."""

    def __init__(self) -> None:
        super().__init__()
        outer = self

        class Layer(pyg_nn().MessagePassing):  # type: ignore[name-defined, misc]
            def forward(self, x: Any, edge_index: Any) -> Any:
                return self.propagate(edge_index, x=x)

            def message(self, x_i: Any, x_j: Any) -> Any:
                outer.calls += 1
                outer.seen += 1
                outer.sum_of_rows.add_(x_j.detach().sum(0))
                outer.sum_of_signs.index_add_(0, torch.zeros(len(x_j), dtype=torch.int64), (x_j > 0).double().detach())
                return (x_i - x_j).sin()

        self.layer, self.calls = Layer(aggr="sum"), 0
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("sum_of_rows", torch.zeros(6))
        self.register_buffer("sum_of_signs", torch.zeros(1, 6))

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.layer(x, edge_index)


MODELS: dict[str, Any] = {
    "edge_conv": lambda: pyg_nn().EdgeConv(pyg_nn().MLP([12, 8, 6]), aggr="max"),
    "point_gnn": lambda: _Points(),
    "counting": Counting,
    "wide": lambda: pyg_nn().EdgeConv(mlp(12, 1024, 6), aggr="mean"),
}


class _Points(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        made = pyg_nn().MLP
        self.layer = pyg_nn().PointGNNConv(made([6, 8, 3]), made([9, 8, 5]), made([5, 8, 6]))

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.layer(x, x[:, :3], edge_index)


def trained(
    name: str, index: Any, x: np.ndarray, nodes: int, seed: int, steps: int, alone: bool, convert: bool
) -> dict[str, Any]:
    """Results in training and after it, gradients of the last step and buffers."""
    with default_dtype(torch.float64):
        model = random_layer(MODELS[name], seed)
        model = sar.convert_batchnorm(model) if convert else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02) if list(model.parameters()) else None
        rows = torch.from_numpy(x).requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(steps):
                model.zero_grad()
                rows.grad = None
                out = model(rows, index)
                (out.square().sum() / nodes).backward()
                if not alone:
                    sar.gather_grads(model)
                if optimizer is not None:
                    optimizer.step()
        grads = {k: p.grad for k, p in model.named_parameters()}
        model.eval()
        after = model(rows.detach(), index).detach()
    calls = getattr(model, "calls", 0)
    buffers = {k: b.clone() for k, b in model.named_buffers()}
    return numpy({"out": out.detach(), "after": after, "x": rows.grad, "grads": grads, "buffers": buffers}) | {
        "calls": calls
    }


def trained_on_worker(part: dict[str, Any], **given: Any) -> dict[str, Any]:
    return trained(index=graph_index(part), alone=False, **given)


def _layer(given: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    class Own(pyg_nn().MessagePassing):  # type: ignore[name-defined, misc]
        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Any) -> Any:
            return given(x_j)

    return Own(aggr="mean")


def _said(layer: Any, x: torch.Tensor, index: Any, where: bool = False) -> list[str]:
    """What a layer warns of; ``where``: and in which file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(x, index)
    said = [w for w in caught if w.category is RuntimeWarning]
    return [f"{w.filename.rpartition('/')[2]}: {w.message}" if where else str(w.message) for w in said]


def warned_of(part: dict[str, Any]) -> dict[str, list[str]]:
    """What is said of numbers of edges, of functions that the table does not have, and of writes."""
    index = graph_index(part)
    x = torch.randn(index.edges.rows("v"), 6)
    store = torch.zeros(6)

    def message(kind: str, m: Any) -> Any:
        if kind == "divided":
            return m.sin() / m.size(0)
        if kind == "shape":
            return m.sin() * (1 / m.shape[0])
        if kind == "len":
            return m.sin() / len(m)
        if kind == "writes":
            torch.sum(m.detach().sin(), 0, out=store)
        if kind == "copies":
            torch.zeros(m.size(0), 6).copy_(m.detach())
        if kind == "unknown":
            return torch.special.i1(m) if not hasattr(torch, "airy_ai") else torch.special.airy_ai(m)
        return m.view(m.size(0), 2, 3).flatten(1).clone()

    kinds = ("divided", "shape", "len", "writes", "copies", "unknown", "plain")
    return {kind: _said(_layer(functools.partial(message, kind)), x, index, where=True) for kind in kinds}


def refused(part: dict[str, Any]) -> str:
    """Batch norm that was declared."""
    index = graph_index(part)
    layer = pyg_nn().EdgeConv(sar.rowwise(nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4))))
    return refusal(layer, torch.randn(index.edges.rows("v"), 6), index)


WIDTH = 4
MIXED: dict[str, Callable[[Any], Any]] = {
    "mean": lambda m: m - m.mean(0),
    "sum": lambda m: m / (m.abs().sum() + 1),
    "amax": lambda m: m - torch.amax(m, dim=0, keepdim=True),
    "max": lambda m: m - m.max(),
    "softmax": lambda m: m.softmax(dim=0),
    "sort": lambda m: m.sort(-2)[0],
    "std": lambda m: m / (m.std(dim=(0, 1)) + 1),
    "norm": lambda m: m / (m.norm() + 1),
    "batch_norm": nn.BatchNorm1d(WIDTH),
}
"""By the name of the function that mixes edges."""
ALONE: list[Callable[[Any], Any]] = [
    lambda m: m - m.mean(-1, keepdim=True),
    lambda m: m.softmax(-1) * m.norm(dim=-1, keepdim=True) + m.amax(1, keepdim=True),
    lambda m: torch.max(m, -m).sort(-1)[0],
    lambda m: m.unsqueeze(1).expand(-1, 3, -1).max(dim=1)[0],
    nn.BatchNorm1d(WIDTH).eval(),
    sar.convert_batchnorm(nn.BatchNorm1d(WIDTH)),
]
"""Messages that treat each edge by itself, or look at those of all workers."""


def warned_of_mixing(part: dict[str, Any]) -> dict[str, list[str]]:
    """What is warned of, by the name of the message."""
    index = graph_index(part)
    x = torch.randn(index.edges.rows("v"), WIDTH)
    messages = [*MIXED.items(), *((str(n), message) for n, message in enumerate(ALONE))]
    return {name: _said(_layer(message), x, index) for name, message in messages}
