"""Attention on the workers: a layer that no library has, and what layers allocate."""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, List, Tuple

import dgl.function as fn
import numpy as np
import torch
import torch.nn.functional as F
from dgl.nn.functional import edge_softmax
from torch import Tensor, nn

import sar
from sar._engine import library, log
from sar.graph.edge_tensor.tensor import EdgeTensor
from tests.support.worker import build, numpy


class GatedAttention(nn.Module):
    """Attention with two terms of edges, a gate of edges and dropout, written as one writes it for DGL.

    Logits are ``leaky_relu(el[src] + er[dst] + near[edge] + scale * far[edge])``; weights are their softmax, dropped
    out, times ``sigmoid(<key[src], query[dst]>)``.

    :param mask: what stands for dropout, ``[num_edges, heads, 1]``; None: dropout itself
    """

    def __init__(self, features: int, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.width, self.dropout = heads, width, dropout
        self.project = nn.Linear(features, heads * width, bias=False)
        self.key, self.query = nn.Linear(features, heads * width), nn.Linear(features, heads * width)
        self.left, self.right = (nn.Parameter(torch.empty(1, heads, width)) for _ in range(2))
        self.scale = nn.Parameter(torch.empty(1, heads, 1))
        for p in self.parameters():
            nn.init.normal_(p, std=0.3)

    def forward(self, graph: Any, x: Tensor, near: Tensor, far: Tensor, mask: Any = None) -> Tensor:
        with graph.local_scope():
            ft, key, query = (f(x).view(len(x), self.heads, self.width) for f in (self.project, self.key, self.query))
            graph.srcdata.update(
                {"ft": ft, "el": (ft * self.left).sum(-1, keepdim=True), "key": key / key.shape[-1] ** 0.5}
            )
            graph.dstdata.update({"er": (ft * self.right).sum(-1, keepdim=True), "query": query})
            graph.edata["far"] = far
            graph.apply_edges(fn.u_add_v("el", "er", "e"))
            graph.apply_edges(fn.copy_e("far", "f"))
            graph.apply_edges(fn.u_dot_v("key", "query", "g"))
            e = F.leaky_relu(graph.edata.pop("e") + near + graph.edata.pop("f") * self.scale, 0.1)
            weights = edge_softmax(graph, e)
            weights = F.dropout(weights, self.dropout, self.training) if mask is None else weights * mask
            graph.edata["w"] = weights * torch.sigmoid(graph.edata.pop("g"))
            graph.update_all(fn.u_mul_e("ft", "w", "m"), fn.sum("m", "out"))
            out: Tensor = graph.dstdata["out"]
            return out


def made(seed: int, options: Dict[str, Any]) -> GatedAttention:
    """The same layer everywhere, in double precision."""
    torch.manual_seed(seed)
    return GatedAttention(**options).double()


def gated(
    part: Dict[str, Any],
    options: Dict[str, Any],
    x: np.ndarray,
    near: np.ndarray,
    far: np.ndarray,
    grad: np.ndarray,
    keys: np.ndarray,
    training: bool,
) -> Dict[str, Any]:
    """The layer and its backward, twice, and the mask of its dropout."""
    graph = build(part)
    graph._relations[0].edge_keys = torch.from_numpy(keys.copy())
    layer = made(3, options).train(training)
    leaves = [torch.from_numpy(a.copy()).requires_grad_() for a in (x, near, far)]
    found: List[List[Any]] = []
    for _ in range(2):
        for t in (*leaves, *layer.parameters()):
            t.grad = None
        torch.manual_seed(11)
        out = layer(graph, *leaves)
        out.backward(torch.from_numpy(grad))
        found.append([out.detach(), *(t.grad for t in (*leaves, *layer.parameters()))])
    assert all(torch.equal(a, b) for a, b in zip(*found))
    graph.edata["one"] = torch.ones(graph.num_edges(), options["heads"], 1, dtype=torch.float64)
    graph.apply_edges(fn.copy_e("one", "m"))
    torch.manual_seed(11)
    mask = F.dropout(graph.edata.pop("m"), options["dropout"], training)
    return numpy({"found": found[0], "mask": mask.materialize() if isinstance(mask, EdgeTensor) else mask})


HEADS, WIDTH = 4, 16


def _layers() -> Dict[str, Callable[[], nn.Module]]:
    import dgl.nn as dn

    size, options = HEADS * WIDTH, {"allow_zero_in_degree": True}
    return {
        "GATConv": lambda: dn.GATConv(size, WIDTH, HEADS, attn_drop=0.3, **options),
        "GATv2Conv": lambda: dn.GATv2Conv(size, WIDTH, HEADS, attn_drop=0.3, **options),
        "DotGatConv": lambda: dn.DotGatConv(size, WIDTH, HEADS, **options),
        "AGNNConv": lambda: dn.AGNNConv(**options),
        "GatedAttention": lambda: GatedAttention(size, HEADS, WIDTH, 0.3),
    }


LAYERS = ("GATConv", "GATv2Conv", "DotGatConv", "AGNNConv", "GatedAttention")


def _step(graph: Any, layer: nn.Module, x: np.ndarray, more: Tuple[Tensor, ...], materialize: bool) -> None:
    features = torch.from_numpy(x.copy()).requires_grad_()
    made = layer(graph, features, *more)
    if materialize:
        graph.srcdata["x"] = features
        graph.apply_edges(fn.u_add_v("x", "x", "e"))
        made = made.sum() + graph.edata.pop("e").materialize().sum()
    made.sum().backward()


def allocations(part: Dict[str, Any], x: np.ndarray, materialize: bool = False) -> Dict[str, Dict[str, Any]]:
    """The largest single allocation of torch, and the growth of each purpose of the engine's memory, in forward and
    backward of each layer. The layer runs once before, which makes what stays: the order of edges.

    :param materialize: read an edge tensor in between, to see that this is found
    """
    graph = build(part)
    edges = graph.num_edges()
    near, far = torch.zeros(edges, HEADS, 1), torch.zeros(edges, HEADS, 1)
    out = {}
    for name, make in _layers().items():
        layer = make()
        more = (near, far) if name == "GatedAttention" else ()
        _step(graph, layer, x, more, materialize)
        library.call("sar_reset_peaks")
        before = sar.memory_stats()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            _step(graph, layer, x, more, materialize)
        after = sar.memory_stats()
        sizes: List[int] = [e.nbytes() for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
        growth = {
            purpose: after[purpose]["peak"] - before[purpose]["live"]
            for purpose in after
            if purpose in ("structure", "features", "scratch")
        }
        out[name] = {"torch": max(sizes), "engine": growth, "edges": edges}
    return out


def computed(part: Dict[str, Any]) -> List[str]:
    """What is logged while values of edge tensors are read: twice by one function, once by another, never by what
    extends an expression."""
    graph = build(part)
    said: List[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log._said.clear()
    ear = Ear()
    log.logger.addHandler(ear)
    try:
        graph.ndata["x"] = torch.ones(graph.num_nodes(), 2)
        graph.apply_edges(fn.u_add_v("x", "x", "e"))
        e = torch.sigmoid(graph.edata.pop("e")) * 2
        torch.cumsum(e, 0)
        torch.cumsum(e + 1, 0)
        torch.sort(e)
    finally:
        log.logger.removeHandler(ear)
    return said
