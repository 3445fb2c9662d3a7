"""The attention loss of SuperGATConv, which compares edges with pairs of nodes that are none."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import remove_self_loops

from sar.graph.edge_index.index import SplitEdgeIndex
from sar.links.negative import pairs_apart

from .layers import in_any_order
from .unsupervised import share


class PairLabels(Tensor):
    """Which pairs of nodes of this worker are edges. Cross entropy with it is this worker's share of the mean over the
    pairs of all workers, to which the shares add up; that is collective."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is not F.binary_cross_entropy_with_logits:
                return func(*args, **(kwargs or {}))
            logits, wanted = args
            return share(F.binary_cross_entropy_with_logits(logits, wanted, reduction="none"))

    def __deepcopy__(self, memo: Dict[int, Any]) -> PairLabels:
        return self.as_subclass(Tensor).clone().as_subclass(PairLabels)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(Tensor).__reduce_ex__(protocol)  # models are saved without names of ours


def super_gat_conv(
    original: Any,
    layer: Any,
    x: Tensor,
    edge_index: Any,
    neg_edge_index: Optional[Tensor] = None,
    batch: Optional[Tensor] = None,
) -> Tensor:
    """The forward of SuperGATConv."""
    if layer.training and neg_edge_index is None:
        neg_edge_index = _no_edges(layer, edge_index, batch)
    out = original(layer, x, in_any_order(edge_index), neg_edge_index, batch)
    if layer.training:
        layer.att_y = layer.att_y.as_subclass(PairLabels)
    return out


def _no_edges(layer: Any, edge_index: SplitEdgeIndex, batch: Optional[Tensor]) -> SplitEdgeIndex:
    """Pairs of nodes of all workers that are no edges in either direction, as many as PyG draws. Collective."""
    if layer.add_self_loops:
        edge_index = remove_self_loops(edge_index.in_any_order())[0].with_loops()
    return pairs_apart(edge_index, int(layer.neg_sample_ratio * layer.edge_sample_ratio * edge_index.shape[1]), batch)
