"""Layers of PyG in one piece, where nothing can see that their steps are not run one by one.

Each rank decides that for itself, so what it sends must not depend on it: rows are aggregated before they are
multiplied, as PyG's own steps do, also where the product would be narrower.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch_geometric.nn import MeanAggregation, SAGEConv
from torch_geometric.nn.dense.linear import Linear

from sar.autograd.fused import lean
from sar.autograd.fused.deferred import computed
from sar.autograd.fused.eligibility import as_made, note_choice, undisturbed
from sar.autograd.fused.sage import sage_mean
from sar.graph.edge_index.index import SplitEdgeIndex

__all__ = ["sage_conv"]

HOOKS = [
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
]
"""Attributes of torch_geometric.nn.MessagePassing."""
METHODS = ("propagate", "message", "aggregate", "update", "message_and_aggregate", "edge_updater")


def sage_conv(original: Any, layer: Any, x: Any, edge_index: Any, size: Any = None) -> Tensor:
    """The forward of SAGEConv."""
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(layer, x, edge_index, size)
    x = computed(x)
    fits = size is None and not edge_index.flipped and edge_index.edges.square and _sage_fits(layer, x, edge_index)
    if not note_choice(layer, edge_index.graph, fits):
        return original(layer, x, edge_index, size)
    lin = layer.lin_l
    out = sage_mean(edge_index.edges.relation, x, lin.weight, layer.lin_r.weight, lin.bias, False)
    return nn.functional.normalize(out, p=2.0, dim=-1) if layer.normalize else out


def _sage_fits(layer: Any, x: Any, edge_index: SplitEdgeIndex) -> bool:
    return (
        type(layer) is SAGEConv
        and _steps_as_made(layer)
        and as_made(layer.aggr_module, MeanAggregation)
        and layer.root_weight
        and not layer.project
        and all(_fits(lin, x) for lin in (layer.lin_l, layer.lin_r))
        and x.shape[0] == edge_index.edges.rows("u")
        and not lean.active()
        and undisturbed()
    )


def _fits(lin: Any, x: Any) -> bool:
    """Whether a linear map on rows is the product with its weight."""
    return (
        as_made(lin, Linear)
        and type(x) in (Tensor, nn.Parameter)
        and x.dim() == 2
        and x.dtype in (torch.float32, torch.float64)
        and x.dtype == lin.weight.dtype
        and x.shape[1] == lin.in_channels
    )


def _steps_as_made(layer: Any) -> bool:
    """Whether propagate runs the steps of the layer's class and nothing else, from sources to destinations."""
    replaced: Optional[str] = next((name for name in METHODS if name in vars(layer)), None)
    return (
        replaced is None
        and not any(getattr(layer, name) for name in HOOKS)
        and not layer.explain
        and layer.decomposed_layers == 1
        and layer.flow == "source_to_target"
    )
