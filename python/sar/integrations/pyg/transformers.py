"""Graph transformers, in which each node attends to the nodes of all workers."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn.attention.performer import generalized_kernel

from sar._engine import abi, session as _session
from sar.autograd.fused.prepared import instead_of_forward, prepared
from sar.autograd.types import class_of
from sar.distributed.agreement import equal_on_all
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.readout import NodeBatch, rows_of_all
from sar.nn.functional import linear_attention

from .over_nodes import node_batch

# ---- attention ---------------------------------------------------------------------


def _own_rows(layer: nn.Module, x: Tensor) -> Optional[Tensor]:
    """The rows of own nodes, ``[n, f]``, if the graph in ``x`` is the split one. Collective as :func:`node_batch`."""
    rows = x.squeeze(0) if x.dim() == 3 and len(x) == 1 else None
    return None if node_batch(layer, rows) is None else rows


def _masked(v: Tensor, mask: Optional[Tensor]) -> Tensor:
    """``v``, ``[n, ...]``, with zeros where a mask ``[1, n]`` of PyG's is false."""
    if mask is None or bool(mask.all()):
        return v
    return v.masked_fill(~mask.view(-1, *(1,) * (v.dim() - 1)), 0.0)


def sgformer_attention(original: Any, layer: Any, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
    rows = _own_rows(layer, x)
    if rows is None:
        return original(layer, x, mask)
    heads = len(rows), layer.heads, layer.head_channels
    q, k = (_of_length_one(linear(rows).view(heads)) for linear in (layer.q, layer.k))
    v = _masked(layer.v(rows).view(heads), mask)
    weighted, total, nodes = linear_attention(q, k, v)
    return ((weighted + nodes * v) / (total + nodes).unsqueeze(-1)).mean(1).unsqueeze(0)


def _of_length_one(rows: Tensor) -> Tensor:
    zero = rows == 0
    if bool(zero.any()):  # as PyG has it
        rows = rows.masked_fill(zero, 1e-6)
    return rows / torch.linalg.norm(rows, dim=-1, keepdim=True)


def polynormer_attention(original: Any, layer: Any, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
    rows = _own_rows(layer, x)
    if rows is None:
        return original(layer, x, mask)

    def by_head(wide: Tensor) -> Tensor:
        return wide.view(len(rows), layer.head_channels, layer.heads).transpose(1, 2)

    k = by_head(layer.k(rows).sigmoid())
    q = k if layer.qk_shared else by_head(layer.q(rows).sigmoid())
    weighted, total, _ = linear_attention(q, k, _masked(by_head(layer.v(rows)), mask))
    mean = (weighted / (total.unsqueeze(-1) + 1e-6)).transpose(1, 2).flatten(1)
    out = layer.lns(mean) * (layer.h_lins(rows) + layer.beta)
    out = layer.dropout(F.relu(layer.lin_out(out)))
    return out.unsqueeze(0)


def performer_attention(original: Any, layer: Any, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
    rows = _own_rows(layer, x)
    if rows is None:
        return original(layer, x, mask)
    projection = layer.fast_attn
    _make_equal(projection.projection_matrix)
    heads = len(rows), layer.heads, layer.head_channels

    def projected(wide: Tensor) -> Tensor:
        by_head = wide.view(heads).transpose(0, 1).unsqueeze(0)
        return generalized_kernel(by_head, projection.projection_matrix, projection.kernel).squeeze(0).transpose(0, 1)

    v = _masked(layer.v(rows).view(heads), mask)
    weighted, total, _ = linear_attention(projected(layer.q(rows)), projected(layer.k(rows)), v)
    out = layer.attn_out((weighted / total.unsqueeze(-1)).flatten(1))
    return layer.dropout(out).unsqueeze(0)


def _make_equal(matrix: Tensor) -> None:
    """Gives all workers the matrix of rank 0, which each may have drawn for itself. Collective."""
    drawn = hashlib.blake2b(matrix.detach().numpy().tobytes(), digest_size=7).digest()
    (alike,), _ = equal_on_all([int.from_bytes(drawn, "little")])
    if not alike:
        _session.broadcast(matrix, 0, abi.TRAIN)


# ---- models and layers that hold it ---------------------------------------------------


def of_one_graph(
    original: Any, model: nn.Module, x: Tensor, edge_index: Any, batch: Optional[Tensor] = None, **named: Any
) -> Tensor:
    """The forward of a model whose attention is prepared: the model's own, for which the nodes of all workers are one
    graph."""
    if isinstance(edge_index, SplitEdgeIndex):
        graphs = node_batch(model, x, 0, batch)
        if graphs is not None:
            batch = _one(graphs, type(model).__name__)
        elif batch is None:  # of one worker, and PyG wants a vector
            batch = torch.zeros(len(x), dtype=torch.int64)
    return original(model, x, edge_index, batch, **named)


def _one(graphs: NodeBatch, name: str) -> NodeBatch:
    if graphs.graphs > 1:
        raise NotImplementedError(
            f"{name} on a graph split over workers attends to the nodes of one graph, and its batch vector names "
            f"{graphs.graphs}: give None, and train on graphs one after the other"
        )
    return graphs


def _after(layer: Any, norm: Any, h: Tensor, x: Tensor, named: Dict[str, Any]) -> Tensor:
    """Dropout, the residual connection, and a normalization."""
    h = F.dropout(h, p=layer.dropout, training=layer.training) + x
    return h if norm is None else norm(h, **named)


def gps_conv(
    original: Any, layer: Any, x: Tensor, edge_index: Any, batch: Optional[Tensor] = None, **kwargs: Any
) -> Tensor:
    """Own nodes attend to the nodes of all workers: with Performer by sums over workers, else by their rows, which are
    gathered: N rows, and own x N weights a head."""
    graphs = node_batch(layer, x, 0, batch)
    if graphs is None:  # one worker has all nodes
        return original(layer, x, edge_index, batch, **kwargs)
    hs: List[Tensor] = []
    named = {"batch": None if batch is None else graphs} if layer.norm_with_batch else {}
    if layer.conv is not None:
        hs.append(_after(layer, layer.norm1, layer.conv(x, edge_index, **kwargs), x, named))
    hs.append(_after(layer, layer.norm2, _attended(layer.attn, x, graphs), x, named))
    out = sum(hs)
    out = out + layer.mlp(out)
    return out if layer.norm3 is None else layer.norm3(out, **named)


def _attended(attention: Any, x: Tensor, graphs: NodeBatch) -> Tensor:
    if isinstance(attention, pyg.PerformerAttention):
        _one(graphs, "GPSConv(attn_type='performer')")
        forward = functools.partial(performer_attention, class_of(attention).forward, attention)
        known = prepared(attention) is not None
        with contextlib.nullcontext() if known else instead_of_forward(attention, forward):
            return attention(x.unsqueeze(0)).squeeze(0)
    everyone = rows_of_all(x).unsqueeze(0)
    own = graphs.as_subclass(Tensor)
    others = None if graphs.graphs == 1 else own.unsqueeze(1) != rows_of_all(own)
    if not len(own):  # torch divides by the number of queries
        return x + 0 * everyone.sum()
    return attention(x.unsqueeze(0), everyone, everyone, attn_mask=others, need_weights=False)[0].squeeze(0)


# ---- what is prepared ------------------------------------------------------------------

ADDED = "workers add up a matrix and a vector for each head, and no row travels"
FORWARDS: Dict[Any, Tuple[Callable[..., Any], str]] = {
    pyg.SGFormerAttention: (sgformer_attention, ADDED),
    pyg.PolynormerAttention: (polynormer_attention, ADDED),
    pyg.PerformerAttention: (performer_attention, ADDED),
    pyg.SGFormer: (of_one_graph, "the nodes of all workers are its graph"),
    pyg.Polynormer: (of_one_graph, "the nodes of all workers are its graph"),
}
"""What stands for the forward of a prepared module, and is given the original; and why."""


def instead_of(module: nn.Module) -> Optional[Tuple[Callable[..., Any], str]]:
    """What stands for the forward of a prepared module, and is given the module; and why. None where it is of none of
    these classes, or has a forward of its own."""
    base = class_of(module)
    for kind, (function, why) in FORWARDS.items():
        if issubclass(base, kind) and base.forward is kind.forward:
            return functools.partial(_called, function), why
    return None


def _called(function: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    base = class_of(module)
    if base is type(module):
        return function(base.forward, module, *args, **kwargs)
    with instead_of_forward(module, functools.partial(function, base.forward, module)):  # under sar.remat
        return type(module).forward(module, *args, **kwargs)
