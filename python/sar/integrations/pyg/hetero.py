"""Layers of torch_geometric that treat all relations of a heterograph together."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_index.rows import lift
from sar.graph.readout import one_graph, reduce_by_graph

from .reductions import scatter, softmax


def initialize(original: Any, layer: Any, module: Any, given: Any) -> None:
    """HeteroDictLinear takes unknown widths from the first row of each type, and this worker may own none."""
    rows = {kind: x if len(x) else x.new_empty(1, x.shape[-1]) for kind, x in given[0].items()}
    original(layer, module, (rows, *given[1:]))


# ---- HANConv -------------------------------------------------------------------


def han_conv(
    original: Any, layer: Any, x_dict: Any, edge_index_dict: Any, return_semantic_attention_weights: bool = False
) -> Any:
    """The forward of HANConv, which weighs relations by means over nodes."""
    heads, width = layer.heads, layer.out_channels // layer.heads
    rows = {kind: layer.proj[kind](x).view(-1, heads, width) for kind, x in x_dict.items()}
    sums: Dict[str, List[Tensor]] = {kind: [] for kind in rows}
    for triple, index in edge_index_dict.items():
        ends, name = (rows[triple[0]], rows[triple[2]]), "__".join(triple)
        scores = (ends[0] * layer.lin_src[name]).sum(-1), (ends[1] * layer.lin_dst[name]).sum(-1)
        sums[triple[2]].append(F.relu(layer.propagate(index, x=ends, alpha=scores)))
    weighed = {kind: _weighed(xs, layer.q, layer.k_lin) for kind, xs in sums.items()}
    out = {kind: x for kind, (x, _) in weighed.items()}
    return (out, {kind: share for kind, (_, share) in weighed.items()}) if return_semantic_attention_weights else out


def _weighed(xs: List[Tensor], q: Tensor, k_lin: Any) -> Any:
    """The sum of relations, each weighed by a mean over the nodes of all workers, and the weights. Collective."""
    if not xs:
        return None, None
    out = torch.stack(xs, 1)  # [nodes, relations, features]
    keys = torch.tanh(k_lin(out)).flatten(1)
    counted = torch.cat([keys, keys.new_ones(len(out), 1)], 1)
    total = reduce_by_graph(counted, one_graph(len(out)), 0, "sum").squeeze(0)
    mean = (total[:-1] / total[-1].clamp(min=1)).view(len(xs), -1)
    attention = F.softmax((q * mean).sum(-1), dim=0)
    return (attention.view(-1, 1) * out).sum(1), attention


# ---- HGTConv -------------------------------------------------------------------

Message = Tuple[SplitEdgeIndex, Any, Any]
"""An edge index, and for each edge logits ``[heads]`` and values ``[heads, features]``."""


def hgt_conv(original: Any, layer: Any, x_dict: Dict[str, Tensor], edge_index_dict: Dict[Any, Any]) -> Any:
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
    most = scatter(None, logits, index[1], dim=0, reduce="max")
    return most.masked_fill(none.unsqueeze(-1), float("-inf"))


def _sum(values: Tensor, index: SplitEdgeIndex) -> Tensor:
    return scatter(None, values, index[1], dim=0, reduce="sum")
