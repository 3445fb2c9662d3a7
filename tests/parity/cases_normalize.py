"""What runs on the workers to test batch norm that is computed where it is read, and layers that compute rows again."""

from __future__ import annotations

from functools import partial
from typing import Any

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import sar
from sar.autograd.fused import recompute
from tests.parity.pyg_specs import pyg_nn
from tests.support.worker import build, numpy

WAYS = ["relu", "in place", "plain", "elu", "read twice", "checkpoint", "remat", "bfloat16", "backward twice"]
WAYS += ["no grad", "changed before", "changed after", "reentrant checkpoint", "checkpoint and read later"]
WAYS += ["changed after, and read"]
NOTHING = ["dropout 0", "dropout in evaluation", "dropout after batch norm"]  # what gives its input as it is
COUNTED = ["relu", *NOTHING, "contiguous", "contiguous after batch norm"]
"""Ways in which rows are computed again, in place of being kept."""
WAYS += COUNTED[1:]


class Net(nn.Module):
    """Three layers of SAGE, GAT or PyG's GCN with batch norm between them. ``way``: what follows batch norm, and how it
    runs."""

    def __init__(self, kind: str, widths: list[int], norm: Any, way: str) -> None:
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        # a bias that batch norm takes away again has a gradient of nothing but rounding
        layers: list[nn.Module]
        if kind == "gcn":
            layers = [pyg_nn().GCNConv(i, o, bias=o == widths[-1]) for i, o in pairs]
        elif kind == "sage":
            layers = [dgl.nn.SAGEConv(i, o, "mean", bias=o == widths[-1]) for i, o in pairs]
        else:
            layers = [dgl.nn.GATConv(i, o, 1, allow_zero_in_degree=True, bias=o == widths[-1]) for i, o in pairs]
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(norm(o) for _, o in pairs[:-1])
        self.way, self.kind = way, kind

    def convolve(self, n: int, graph: Any, h: torch.Tensor) -> torch.Tensor:
        layer = self.layers[n]
        return layer(h, graph) if self.kind == "gcn" else layer(graph, h).flatten(1)

    def block(self, n: int, graph: Any, h: torch.Tensor) -> torch.Tensor:
        h = self.norms[n](self.convolve(n, graph, h))
        if self.way == "in place":
            return F.relu(h, inplace=True)
        if self.way == "dropout 0":
            return F.dropout(F.relu(h), 0.0)
        if self.way == "dropout in evaluation":
            return nn.Dropout(0.5).eval()(F.relu(h))
        if self.way == "dropout after batch norm":
            return torch.dropout(h, 0.0, train=True)
        if self.way == "contiguous":
            return F.relu(h).contiguous()
        if self.way == "contiguous after batch norm":
            return h.contiguous()
        if self.way == "plain":
            return h
        if self.way == "changed before":  # the next layer reads it
            return h.mul_(2)
        if self.way == "changed data":
            h = F.relu(h)
            h.data.mul_(2)
            return h
        return F.elu(h) if self.way == "elu" else F.relu(h)

    def forward(self, graph: Any, h: torch.Tensor, again: bool) -> torch.Tensor:
        hidden = []
        for n, _ in enumerate(self.norms):
            hidden.append(h)
            if again and "checkpoint" in self.way:
                h = checkpoint(self.block, n, graph, h, use_reentrant="reentrant" in self.way)
            else:
                h = self.block(n, graph, h)
        out = self.convolve(-1, graph, h)
        if "read later" in self.way:  # torch's checkpoints run again with rows that are there by now
            out = out + sum(h.mean(1, keepdim=True) for h in hidden)
        if self.way == "changed after, and read":
            out = out + (h.mul_(3) if again else h * 3).mean(1, keepdim=True)
        if again and self.way == "changed after":  # torch forbids it; here the layers have saved what it is made of
            with torch.no_grad():
                h.mul_(3)
        if self.way == "read twice":
            out = out + 0.5 * self.convolve(-1, graph, h) * h.mean(1, keepdim=True)
        return out


class OfOneBlock(nn.Module):
    """A block of a net as a module of its own."""

    def __init__(self, net: Net, n: int) -> None:
        super().__init__()
        self.layer, self.norm, self.swapped = net.layers[n], net.norms[n], net.kind == "gcn"

    def forward(self, graph: Any, h: torch.Tensor) -> torch.Tensor:
        h = self.layer(h, graph) if self.swapped else self.layer(graph, h).flatten(1)
        return F.relu(self.norm(h))


def wrap(net: Net) -> Any:
    """The blocks of a net under sar.remat, in the place of its own."""
    dtype = torch.bfloat16 if net.way == "bfloat16" else None
    blocks = [sar.remat(OfOneBlock(net, n), dtype=dtype) for n in range(len(net.norms))]
    return lambda n, graph, h: blocks[n](graph, h)


def step(
    part: dict[str, Any], kind: str, way: str, x: np.ndarray, grad: np.ndarray, state: dict[str, np.ndarray], width: int
) -> dict[str, Any]:
    """Result and all gradients, and how often rows, and masks of ReLU, were computed again."""
    widths = [x.shape[1], width, width, grad.shape[1]]
    net = Net(kind, widths, sar.DistributedBN1D, way).to(torch.from_numpy(x).dtype)
    net.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    if way in ("remat", "bfloat16"):
        net.block = wrap(net)  # type: ignore[method-assign]
    rows = torch.from_numpy(x.copy()).requires_grad_()
    graph = build(part)
    graph = sar.pyg.edge_index(graph) if kind == "gcn" else graph
    counts = {"applied": 0, "masks": 0}
    originals = {"applied": recompute.kernels.normalize, "masks": recompute.kernels.normalize_back}

    def counted(name: str, *args: Any) -> None:
        counts[name] += 1
        originals[name](*args)

    recompute.kernels.normalize = partial(counted, "applied")
    recompute.kernels.normalize_back = partial(counted, "masks")
    try:
        out = net(graph, rows, True)
        counts["forward"] = counts["applied"]
        if way == "no grad":
            with torch.no_grad():
                assert torch.equal(net(graph, rows, False), out)
        upstream = torch.from_numpy(grad)
        if way == "backward twice":
            out.backward(upstream / 2, retain_graph=True)
            upstream = upstream / 2
        out.backward(upstream)
    finally:
        recompute.kernels.normalize, recompute.kernels.normalize_back = originals["applied"], originals["masks"]
    sar.gather_grads(net)
    found = {"out": out, "x": rows.grad, **{name: p.grad for name, p in net.named_parameters()}}
    return {**numpy(found), "counts": counts}
