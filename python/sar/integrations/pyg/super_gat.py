"""The attention loss of SuperGATConv, which compares edges with pairs of nodes that are none."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple
from weakref import WeakSet

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import batched_negative_sampling, negative_sampling, to_undirected

from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.readout import sum_over_workers
from sar.integrations.replacements import given

__all__ = ["LOSS", "SAMPLING", "concerned", "on_split_graph"]

_split: WeakSet[torch.nn.Module] = WeakSet()
"""Layers whose last forward in training was on a split graph."""
_given = given(SplitEdgeIndex)


class _Seen:
    """Whether a layer was ever trained on a split graph: torch.compile need not trace the set before that."""

    any = False


_seen = _Seen()


def _positive_sampling(original: Any, layer: Any, edge_index: Any) -> Tensor:
    (_split.add if isinstance(edge_index, SplitEdgeIndex) else _split.discard)(layer)
    _seen.any = True
    edges: Tensor = original(layer, edge_index)
    return edges


def _negative_sampling(
    original: Any, layer: Any, edge_index: Any, num_nodes: int, batch: Optional[Tensor] = None
) -> Tensor:
    """Pairs of own nodes that are no edges in either direction: as many as PyG draws for this worker's edges, fewer
    where it owns too few nodes. Local."""
    if not isinstance(edge_index, SplitEdgeIndex):
        drawn: Tensor = original(layer, edge_index, num_nodes, batch)
        return drawn
    wanted = int(layer.neg_sample_ratio * layer.edge_sample_ratio * edge_index.shape[1])
    edges = edge_index.numbers()
    edges = to_undirected(edges[:, (edges < num_nodes).all(0)], num_nodes=num_nodes)
    if batch is not None and num_nodes:
        drawn = batched_negative_sampling(edges, batch.as_subclass(Tensor), num_neg_samples=wanted)
    else:
        drawn = negative_sampling(edges, num_nodes, num_neg_samples=wanted)
    return drawn


def _get_attention_loss(original: Any, layer: Any) -> Tensor:
    """This worker's share of the mean over the pairs of all workers: the shares add up to it. Collective."""
    if not layer.training:
        loss: Tensor = original(layer)
        return loss
    logits, wanted = layer.att_x.mean(dim=-1), layer.att_y
    pairs = sum_over_workers(torch.tensor([len(wanted)], dtype=torch.float64)).to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum") / pairs.squeeze(0).clamp(min=1)


def on_split_graph(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether the last forward of a layer in training was on a split graph."""
    return _seen.any and any(layer in _split for layer in args[:1])


def concerned(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether the forward of a layer is on a split graph, or the one before was."""
    return _given(args, kwargs) or on_split_graph(args, kwargs)


SAMPLING: Dict[str, Callable[..., Any]] = {
    "nn.SuperGATConv.positive_sampling": _positive_sampling,
    "nn.SuperGATConv.negative_sampling": _negative_sampling,
}
"""Methods of torch_geometric, each replaced by a function of the original and its arguments."""
LOSS: Dict[str, Callable[..., Any]] = {"nn.SuperGATConv.get_attention_loss": _get_attention_loss}
"""Likewise."""
