"""A model that drops elements, as it is and with the masks that it drew."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import sar
import sar.nn
from tests.support.worker import build, data_of, numpy

SEED = 4
WIDTH = 40


class Net(nn.Module):
    """A dropout of features, one behind batch norm and ReLU, and one behind ReLU alone."""

    masks: list[Tensor] | None = None

    def __init__(self, into: int, out: int, share: float, way: str) -> None:
        super().__init__()
        self.first, self.second = sar.nn.SAGEConv(into, WIDTH, "mean"), sar.nn.SAGEConv(WIDTH, WIDTH, "mean")
        self.third = sar.nn.GATConv(WIDTH, out, 1, merge="mean", allow_zero_in_degree=True)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.dropout, self.share, self.way = nn.Dropout(share), share, way
        self.seen: list[Tensor] = []

    def drop(self, h: Tensor, module: bool) -> Tensor:
        if self.masks is None:
            h = self.dropout(h) if module else F.dropout(h, self.share, self.training)
        else:
            h = h * self.masks[len(self.seen)]
        self.seen.append(h)
        return h

    def hidden(self, graph: Any, h: Tensor) -> Tensor:
        return self.drop(F.relu(self.norm(self.first(graph, self.drop(h, True)))), self.way == "modules")

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        self.seen = []
        if self.way == "checkpoint":
            with set_checkpoint_early_stop(False):
                h = checkpoint(self.hidden, graph, h, use_reentrant=False)
        else:
            h = self.hidden(graph, h)
        out: Tensor = self.third(graph, self.drop(self.second(graph, h).relu(), True))
        return out


def step(part: dict[str, Any], x: np.ndarray, grad: np.ndarray, share: float, way: str) -> dict[str, Any]:
    """Result, gradients, and what was seen behind each dropout; the same with masks; and two epochs more."""
    graph = build(part)
    torch.manual_seed(1)
    plain = Net(x.shape[1], grad.shape[1], share, way).double()
    model = sar.prepare(copy.deepcopy(plain), graph)
    found: dict[str, Any] = {"described": str(sar.describe(model))}
    torch.manual_seed(SEED)
    for name, one in (("one", model), ("apart", sar.convert_batchnorm(plain))):
        rows = torch.from_numpy(x.copy()).requires_grad_()
        out = one(graph, rows)
        seen = one.seen[:3]  # recomputation sees some again
        out.backward(torch.from_numpy(grad))
        sar.gather_grads(one)
        found[name] = numpy({"out": out, "x": rows.grad, **{n: p.grad for n, p in one.named_parameters()}})
        if name == "one":
            found["seen"] = [numpy(h) for h in seen]
            plain.way = "as it is"
            plain.masks = [(h.detach() != 0).double() / (1 - share) for h in seen]
    model(graph, rows)
    found["later"] = [numpy(h) for h in model.seen[:3]]
    kept = model.eval()(graph, rows).detach()
    found["eval"] = all(torch.equal(kept, model(graph, rows).detach()) for _ in range(2))
    return found


class Typed(nn.Module):
    """A dropout of all node types, and one behind the batch norm of each."""

    def __init__(self, kinds: list[str], width: int, share: float) -> None:
        super().__init__()
        self.norms = nn.ModuleDict({kind: nn.BatchNorm1d(width) for kind in kinds})
        self.dropout, self.share = nn.Dropout(share), share

    def forward(self, x: dict[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        return {k: (self.dropout(h), F.dropout(self.norms[k](h), self.share)) for k, h in x.items()}


def typed(part: dict[str, Any], own: dict[str, np.ndarray], x: dict[str, np.ndarray], share: float) -> dict[str, Any]:
    """Which elements are dropped. ``own``: original ids of own nodes, as partitions of files have them."""
    graph = sar.construct_full_graph(data_of(part))
    graph._state.node_keys.update({kind: partial(torch.from_numpy, ids) for kind, ids in own.items()})
    model = sar.prepare(Typed(list(x), x["paper"].shape[1], share), graph)
    torch.manual_seed(SEED)
    found = model({kind: torch.from_numpy(rows).float() for kind, rows in x.items()})
    return {kind: [numpy(h == 0) for h in pair] for kind, pair in found.items()}


def compiled(part: dict[str, Any]) -> bool:
    """A prepared model with dropout, in one piece."""
    graph = build(part)
    model = nn.Sequential(nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
    sar.prepare(model, graph)
    x = torch.randn(graph.num_nodes(), 8, requires_grad=True)
    out = torch.compile(model, backend="eager", fullgraph=True)(x)
    out.sum().backward()
    return x.grad is not None and (len(out) == 0 or bool((out == 0).any()))
