"""What runs on the workers to test models under torch.compile."""

from __future__ import annotations

import warnings
from typing import Any

import dgl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sar
import sar.nn
from tests.support.worker import build


class OwnLayer(nn.Module):
    """Attention, a division by degrees and a message function of one's own."""

    def __init__(self, into: int, onto: int) -> None:
        super().__init__()
        self.linear, self.score = nn.Linear(into, onto), nn.Linear(onto, 1)

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        with graph.local_scope():
            h = self.linear(h)
            graph.srcdata["h"] = h
            graph.srcdata["s"] = graph.dstdata["d"] = self.score(h)
            graph.apply_edges(dgl.function.u_add_v("s", "d", "e"))
            graph.edata["e"] = torch.sigmoid(F.leaky_relu(graph.edata["e"]))
            graph.update_all(dgl.function.u_mul_e("h", "e", "m"), dgl.function.sum("m", "o"))
            graph.update_all(lambda edges: {"m": edges.src["h"] * 2}, dgl.function.sum("m", "q"))
            degrees = graph.in_degrees().clamp(min=1).to(h.dtype).unsqueeze(1)
            return graph.dstdata["o"] / degrees + graph.dstdata["q"]


def layer(kind: str, into: int, onto: int) -> nn.Module:
    library, _, name = kind.partition(".")
    if library == "own":
        return OwnLayer(into, onto)
    make = getattr({"dgl": dgl.nn, "sar": sar.nn}[library], name)
    if name == "SAGEConv":
        return make(into, onto, "mean")
    heads = [1] if name.startswith("GAT") else []
    return make(into, onto, *heads, allow_zero_in_degree=True)


class Net(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList([layer(kind, 5, 6), layer(kind, 6, 6)])
        self.norm = sar.DistributedBN1D(6)

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        h = F.relu(self.norm(self.layers[0](graph, h).flatten(1)))
        return self.layers[1](graph, h).flatten(1)


def both(part: dict[str, Any], kind: str, compiles: bool) -> list[float]:
    """How far results and gradients of a compiled model are from those of the model as it is, two steps each."""
    warnings.simplefilter("ignore")
    graph, found = build(part), []
    for compiled in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        net = Net(kind).double()
        x = torch.randn(graph.num_src_nodes(), 5, dtype=torch.double, requires_grad=True)
        model = torch.compile(net, backend="eager") if compiled and compiles else net
        for _ in range(2):
            out = model(graph, x)
            out.square().sum().backward()
        found.append([out, x.grad, *(p.grad for p in net.parameters())])
    return [float((a - b).abs().max()) if a.numel() else 0.0 for a, b in zip(*found)]
