"""Layers of torch_geometric that treat all relations of a heterograph together."""

from __future__ import annotations

import math
import threading
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.graph.counts import counts
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_index.rows import lift
from sar.graph.readout import graph_reduce

from .over_nodes import seen
from .reductions import scatter, softmax

__all__ = ["METHODS", "WIDTHS", "group", "inside_han_conv", "without_rows"]


def _initialize(original: Any, layer: Any, module: Any, given: Any) -> None:
    """HeteroDictLinear takes unknown widths from the first row of each type, and this worker may own none."""
    rows = {kind: x if len(x) else x.new_empty(1, x.shape[-1]) for kind, x in given[0].items()}
    original(layer, module, (rows, *given[1:]))


def without_rows(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether this may be about a worker that owns no nodes of a type."""
    return seen.several


# ---- HANConv -------------------------------------------------------------------


class _Here(threading.local):
    """Of this thread: whether the forward of HANConv runs on a split graph."""

    han_conv = False


_here = _Here()


def inside_han_conv(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether the forward of HANConv runs on a split graph."""
    return _here.han_conv


def _han_conv(original: Any, *args: Any, **kwargs: Any) -> Any:
    before, _here.han_conv = _here.han_conv, True
    try:
        return original(*args, **kwargs)
    finally:
        _here.han_conv = before


def group(original: Any, xs: List[Tensor], q: Tensor, k_lin: Any) -> Any:
    """HANConv weighs relations by a mean over nodes: here, over the nodes of all workers. Collective."""
    if not xs:
        return original(xs, q, k_lin)
    out = torch.stack(xs, 1)  # [nodes, relations, features]
    rows: Any = counts([len(out)], [len(out)])
    keys = torch.tanh(k_lin(out)).flatten(1)
    total = graph_reduce(rows, torch.cat([keys, keys.new_ones(len(out), 1)], 1), "sum").squeeze(0)
    mean = (total[:-1] / total[-1].clamp(min=1)).view(len(xs), -1)
    attention = F.softmax((q * mean).sum(-1), dim=0)
    return (attention.view(-1, 1) * out).sum(1), attention


# ---- HGTConv -------------------------------------------------------------------

Message = Tuple[SplitEdgeIndex, Any, Any]
"""An edge index, and for each edge logits ``[heads]`` and values ``[heads, features]``."""


def _hgt_conv(original: Any, layer: Any, x_dict: Dict[str, Tensor], edge_index_dict: Dict[Any, Any]) -> Any:
    """PyG puts the edges of all relations together for one softmax at each node; here each keeps its own graph."""
    heads, width = layer.heads, layer.out_channels // layer.heads
    projected = {kind: x.view(-1, 3, heads, width).unbind(1) for kind, x in layer.kqv_lin(x_dict).items()}
    messages: Dict[str, List[Message]] = {kind: [] for kind in projected if kind in layer.dst_node_types}
    for triple, index in edge_index_dict.items():
        key, _, value = projected[triple[0]]
        number = layer.edge_types_map[triple]
        key, value = (
            torch.einsum("nhd,hde->nhe", x, lin.weight.view(heads, -1, width, width)[:, number])
            for x, lin in ((key, layer.k_rel), (value, layer.v_rel))
        )
        source, target = index
        query = projected[triple[2]][1] * (layer.p_rel["__".join(triple)].view(-1, 1) / math.sqrt(width))
        logits = (lift(query, 0, target) * lift(key, 0, source)).sum(-1)
        messages[triple[2]].append((index, logits, lift(value, 0, source)))
    out = {kind: _attended(found, projected[kind][1]) for kind, found in messages.items()}
    out = layer.out_lin({kind: F.gelu(x.flatten(1)) for kind, x in out.items()})
    for kind, x in out.items():
        if x.shape[-1] == x_dict[kind].shape[-1]:
            share = layer.skip[kind].sigmoid()
            out[kind] = share * x + (1 - share) * x_dict[kind]
    return out


def _attended(messages: List[Message], like: Tensor) -> Tensor:
    """Values summed by the softmax of logits over the in-edges of a node in all relations, of the shape of ``like``."""
    if not messages:
        return torch.zeros_like(like)
    if len(messages) == 1:
        index, logits, values = messages[0]
        return _sum(softmax(None, logits, index[1]).unsqueeze(-1) * values, index)
    with torch.no_grad():
        largest = torch.stack([_largest(logits.detach(), index) for index, logits, _ in messages]).amax(0)
        largest = torch.where(torch.isfinite(largest), largest, torch.zeros_like(largest))
    total = out = torch.zeros(())
    for index, logits, values in messages:
        power = (logits - lift(largest, 0, index.end(1))).exp()
        total = total + _sum(power, index)
        out = out + _sum(power.unsqueeze(-1) * values, index)
    return out / (total + 1e-16).unsqueeze(-1)


def _largest(logits: Tensor, index: SplitEdgeIndex) -> Tensor:
    """The largest logit of each node; minus infinity for nodes without edges."""
    none = index.edges.relation.degrees(out=index.flipped) == 0
    most: Tensor = scatter(None, logits, index[1], dim=0, reduce="max")
    return most.masked_fill(none.unsqueeze(-1), float("-inf"))


def _sum(values: Tensor, index: SplitEdgeIndex) -> Tensor:
    made: Tensor = scatter(None, values, index[1], dim=0, reduce="sum")
    return made


METHODS: Dict[str, Callable[..., Any]] = {"nn.HANConv.forward": _han_conv, "nn.HGTConv.forward": _hgt_conv}
"""Methods of torch_geometric, each replaced by a function of the original and its arguments."""
WIDTHS: Dict[str, Callable[..., Any]] = {"nn.HeteroDictLinear.initialize_parameters": _initialize}
"""Likewise."""
