"""Graph transformers and deep models: the same code for PyG on the whole graph and for the workers."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
from torch import Tensor, nn

import sar
import sar.nn
from tests.parity import pyg_deep
from tests.parity.cases_pyg import graph_index
from tests.parity.cases_training import fit
from tests.parity.pyg_specs import IN, OUT, pyg_nn
from tests.support.worker import default_dtype, numpy, random_layer, refusal

HIDDEN = 8


class Gps(nn.Module):
    """Two layers as PyG's example has them."""

    def __init__(self, attention: str, heads: int) -> None:
        super().__init__()
        home = pyg_nn()
        self.first, self.last = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, OUT)
        made = {"heads": heads, "attn_type": attention}
        self.layers = nn.ModuleList(
            [home.GPSConv(HIDDEN, home.SAGEConv(HIDDEN, HIDDEN), **made), home.GPSConv(HIDDEN, None, **made)]
        )

    def forward(self, x: Tensor, edge_index: Any, batch: Any) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, edge_index, batch)
        out: Tensor = self.last(x)
        return out


class Own(nn.Module):
    """A user's own: ``q @ (k.T @ v)``, q and k divided by their norms over all nodes, as SGFormer's authors have it."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.last = heads, nn.Linear(IN, 3 * heads * HIDDEN), nn.Linear(HIDDEN, OUT)
        self.conv = pyg_nn().SAGEConv(IN, HIDDEN)

    def forward(self, x: Tensor, edge_index: Any, batch: Any) -> Tensor:
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, HIDDEN).unbind(1)
        add = sar.nn.functional.sum_over_workers
        q, k = (t / add(t.square().sum()).sqrt() for t in (q, k))
        weighted, total, nodes = sar.nn.functional.linear_attention(q, k, v)
        h = ((weighted + nodes * v) / (total + nodes).unsqueeze(-1)).mean(1)
        first = add(k[:, 0].T @ v[:, 0])
        out: Tensor = self.last(h + q[:, 0] @ first + self.conv(x, edge_index))
        return out


class Bare(nn.Module):
    """Attention modules alone, as models of users have them; some are computed again in backward."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        home = pyg_nn()
        self.sg, self.performer = home.SGFormerAttention(8, 4, 8), home.PerformerAttention(8, 4, 5)
        self.poly, self.conv = home.PolynormerAttention(8, 4, 2), home.SAGEConv(8, OUT)
        self.first = nn.Linear(IN, 8)
        if again:
            for module in (self.sg, self.performer, self.poly):
                sar.remat(module)

    def forward(self, x: Tensor, edge_index: Any, batch: Any) -> Tensor:
        x = self.first(x)
        for attention in (self.sg, self.poly, self.performer):
            x = x + attention(x.unsqueeze(0)).squeeze(0)
        out: Tensor = self.conv(x, edge_index)
        return out


def _sgformer(heads: int, **named: Any) -> nn.Module:
    made: nn.Module = pyg_nn().SGFormer(
        IN, HIDDEN, OUT, trans_num_heads=heads, trans_dropout=0.0, gnn_num_layers=2, gnn_dropout=0.0, **named
    )
    return made


def _polynormer(heads: int, attends: bool = True, **named: Any) -> nn.Module:
    off = {"in_dropout": 0.0, "dropout": 0.0, "global_dropout": 0.0}
    made = pyg_nn().Polynormer(IN, HIDDEN, OUT, local_layers=2, global_layers=2, heads=heads, **off, **named)
    made._global = attends
    return made  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "sgformer": lambda: _sgformer(1),
    "sgformer_heads": lambda: _sgformer(4, aggregate="cat"),
    "polynormer": lambda: _polynormer(1),
    "polynormer_shared": lambda: _polynormer(1, local_attn=True, qk_shared=True, pre_ln=True),
    "polynormer_local": lambda: _polynormer(4, False),  # PyG's attention takes no more heads than one
    "performer": lambda: Gps("performer", 1),
    "performer_heads": lambda: Gps("performer", 4),
    "multihead": lambda: Gps("multihead", 4),
    "own": lambda: Own(1),
    "own_heads": lambda: Own(4),
    "bare": lambda: Bare(False),
    "bare_again": lambda: Bare(True),
    **pyg_deep.MODELS,
}


def _model(name: str, split: Any = None) -> nn.Module:
    """:param split: the edge index that it is prepared for"""
    model = random_layer(MODELS[name])
    if split is None:
        return model
    if sar.rank() > 0:  # what each worker draws for itself
        for module in model.modules():
            if hasattr(module, "redraw_projection_matrix"):
                module.redraw_projection_matrix()
    return sar.prepare(model, split)


def step(
    name: str, x: np.ndarray, index: Any, grad: np.ndarray, vector: bool = True, split: bool = False
) -> dict[str, Any]:
    """The second forward and its gradients, and buffers after it.

    :param vector: a batch vector names the graph of each node; otherwise None
    """
    with default_dtype(torch.float64):
        model = _model(name, index if split else None)
        batch = torch.zeros(len(x), dtype=torch.int64) if vector else None
        rows = torch.from_numpy(x.copy()).requires_grad_()
        for _ in range(2):
            model.zero_grad()
            rows.grad = None
            out = model(rows, index, batch)
            out.backward(torch.from_numpy(grad))
        if split:
            sar.gather_grads(model)
        evaluated = model.eval()(rows.detach(), index, batch)
    grads = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    buffers = {key: b for key, b in model.named_buffers() if b.is_floating_point()}
    return numpy({"rows": {"out": out, "x": rows.grad, "eval": evaluated}, "same": {**grads, **buffers}})


def on_worker(part: dict[str, Any], **given: Any) -> dict[str, Any]:
    return step(index=graph_index(part), **given, split=True)


def losses(name: str, x: np.ndarray, y: np.ndarray, index: Any, nodes: int, split: bool = False) -> list[float]:
    """Of 20 epochs on all nodes."""
    with default_dtype(torch.float64):
        model = _model(name, index if split else None)
        rows, labels, batch = torch.from_numpy(x), torch.from_numpy(y), torch.zeros(len(x), dtype=torch.int64)
        every = torch.ones(len(x), dtype=torch.bool)
        return fit(model, lambda: model(rows, index, batch), labels, every, nodes, 20, alone=not split)


def losses_on_worker(part: dict[str, Any], **given: Any) -> list[float]:
    return losses(index=graph_index(part), **given, split=True)


def travelled(part: dict[str, Any], x: np.ndarray, heads: int, width: int) -> dict[str, Any]:
    """Bytes that this worker sends in the forward and the backward of each attention module, in single precision, and
    what is told of them."""
    index, home = graph_index(part), pyg_nn()

    def sent() -> int:
        return sum(link["sent_payload"] for link in sar.stats()["links"])

    found: dict[str, Any] = {}
    for kind in ("SGFormerAttention", "PolynormerAttention", "PerformerAttention"):
        torch.manual_seed(1)
        module = sar.prepare(getattr(home, kind)(x.shape[1], heads, width), index)
        rows = torch.from_numpy(x.astype(np.float32)).unsqueeze(0).requires_grad_()
        module(rows).sum().backward()
        counts = [sent()]
        out = module(rows)
        counts.append(sent())
        out.sum().backward()
        counts.append(sent())
        (told,) = sar.describe(module)[:1]
        found[kind] = [*np.diff(counts).tolist(), told.sends, told.became]
    return found


def said(part: dict[str, Any], x: np.ndarray) -> dict[str, str]:
    """What is raised. Afterwards, workers still agree on what comes next."""
    index, rows = graph_index(part), torch.from_numpy(x).float()
    zeros = torch.zeros(len(x), dtype=torch.int64)

    def run(name: str, batch: Any, prepare: bool = True) -> Callable[[], Any]:
        model = random_layer(MODELS[name])
        return lambda: (sar.prepare(model, index) if prepare else model)(rows, index, batch)

    function = sar.nn.functional.linear_attention
    tried = {
        "Polynormer, not prepared": run("polynormer", zeros, False),
        "SGFormer of two graphs": run("sgformer", zeros + 1),
        "performer of two graphs": run("performer", zeros + 1),
        "widths": lambda: function(torch.ones(3, 2), torch.ones(3, 4), torch.ones(3, 4)),
        "rows": lambda: function(torch.ones(3, 2), torch.ones(3, 2), torch.ones(4, 2)),
        "a vector": lambda: function(*[torch.ones(3)] * 3),
    }
    found = {name: refusal(call) for name, call in tried.items()}
    total = sar.nn.functional.sum_over_workers(torch.ones(1))
    return {**found, "afterwards": f"{float(total)}"}
