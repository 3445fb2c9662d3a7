"""Layers of PyG in one piece, where nothing can see that their steps are not run one by one.

Each rank decides that for itself, so what it sends must not depend on it: rows are aggregated before they are
multiplied, as PyG's own steps do, and attention sends its scores first. The exception is a SAGEConv whose result is
narrower than its rows: all ranks agree in each forward whether they multiply first, and send the narrower product.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    MeanAggregation,
    SAGEConv,
    SumAggregation,
    TransformerConv,
)
from torch_geometric.nn.conv import gcn_conv as gcn
from torch_geometric.nn.dense.linear import Linear

from sar._engine.columns import checksum
from sar.autograd.autocast import product_dtype
from sar.autograd.fused import low_memory
from sar.autograd.fused.costs import product_first
from sar.autograd.fused.deferred import DeferredTensor, computed
from sar.autograd.fused.eligibility import all_fit, as_made, changed, disturbed, note_choice
from sar.autograd.fused.gat import Rounding, attend
from sar.autograd.fused.linear import computed_again
from sar.autograd.fused.prepared import constant_of
from sar.autograd.fused.scaled_product import normalized_sum, sage_mean
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_index.refusals import check_readers
from sar.graph.edge_tensor.tensor import EdgeTensor

from .layers import in_any_order

HOOKS = [
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
]
"""Attributes of torch_geometric.nn.MessagePassing."""
STEPS = ("propagate", "message", "aggregate", "update", "message_and_aggregate", "edge_updater", "edge_update")


def sage_conv(original: Any, layer: Any, x: Any, edge_index: Any, size: Any = None) -> Tensor:
    """The forward of SAGEConv."""
    x = computed(x)
    plain = size is None and type(layer) is SAGEConv and _is_plain(edge_index)
    fits = plain and _sage_unfit(layer) is None and all(_fits(lin, x, edge_index) for lin in (layer.lin_l, layer.lin_r))
    first = plain and product_is_narrower(layer)
    if first:
        fits = all_fit(layer, fits)
    constant = constant_of(layer) if plain else None
    if not note_choice(layer, edge_index.graph, fits):
        if constant is not None and not first:
            constant.missed()
        return original(layer, x, edge_index, size)
    lin = layer.lin_l
    out = sage_mean(edge_index.edges.relation, x, lin.weight, layer.lin_r.weight, lin.bias, first, constant)
    return nn.functional.normalize(out, p=2.0, dim=-1) if layer.normalize else out


def product_is_narrower(layer: Any) -> bool:
    """Whether a SAGEConv may multiply before it aggregates, and gains by it. Says the same on all ranks."""
    lin, takes = layer.lin_l, isinstance(layer.aggr_module, MeanAggregation) and layer.root_weight and not layer.project
    return takes and isinstance(lin, Linear) and product_first(lin.in_channels, lin.out_channels)


def _sage_unfit(layer: Any) -> Optional[str]:
    """Why a SAGEConv cannot run in one piece; None where it can."""
    if layer.project or not layer.root_weight:
        return "it projects its input" if layer.project else "it has no root_weight"
    return _steps_changed(layer, MeanAggregation) or _linear_changed(layer, "lin_l", "lin_r")


def gcn_conv(original: Any, layer: Any, x: Any, edge_index: Any, edge_weight: Optional[Tensor] = None) -> Tensor:
    """The forward of GCNConv."""
    if not isinstance(x, DeferredTensor) or x._state.unread() is None:
        x = computed(x)
    norm = None
    plain = edge_weight is None and type(layer) is GCNConv and _is_plain(edge_index)
    fits = plain and _gcn_unfit(layer) is None and _fits(layer.lin, x, edge_index)
    # rows of bfloat16 are not scaled before they travel, which would round them
    half = plain and product_dtype(x, layer.lin.weight) == torch.bfloat16
    if fits and not half:
        norm = _norm(layer, x, edge_index)
    constant = constant_of(layer) if plain and not half else None
    if not note_choice(layer, edge_index.graph, norm is not None) or norm is None:
        if constant is not None and not product_first(layer.in_channels, layer.out_channels):
            constant.missed()
        with computed_again(layer.lin) if fits and half else nullcontext():
            return original(layer, computed(x), edge_index, edge_weight)
    edges, left, right = norm
    factors, of = (left.unsqueeze(1), right.unsqueeze(1)), () if constant is None else (checksum(left), checksum(right))
    return normalized_sum(edges.relation, x, layer.lin.weight, layer.bias, lambda: factors, of, constant)


def _gcn_unfit(layer: Any) -> Optional[str]:
    """Why a GCNConv cannot run in one piece; None where it can."""
    if not layer.normalize:
        return "it does not normalize"
    return _steps_changed(layer, SumAggregation) or _linear_changed(layer, "lin", bias=False)


def _norm(layer: Any, x: Tensor, edge_index: SplitEdgeIndex) -> Optional[Tuple[Any, Tensor, Tensor]]:
    """Edges, and the factor of each source and destination; None where weights are not a product of both."""
    found = layer._cached_edge_index
    if found is None:
        found = gcn.gcn_norm(edge_index, None, x.shape[0], layer.improved, layer.add_self_loops, layer.flow, x.dtype)
        if layer.cached:
            layer._cached_edge_index = found
    index, weight = found
    if not isinstance(index, SplitEdgeIndex) or not isinstance(weight, EdgeTensor) or not weight.in_engine:
        return None
    sides = {a.side: a.tensor for a in weight.expr.args} if weight.expr.op == "mul" else {}
    left, right = sides.get("u"), sides.get("v")
    if left is None or right is None or left.requires_grad or right.requires_grad:
        return None
    return (index.edges, left, right) if left.dtype == x.dtype and left.dim() == right.dim() == 1 else None


def gin_conv(original: Any, layer: Any, x: Any, edge_index: Any, size: Any = None) -> Tensor:
    """The forward of GINConv: its steps, with own rows added to the sum in place."""
    own = x[1] if isinstance(x, (tuple, list)) else x
    fits = type(layer) is GINConv and disturbed() is None
    if not fits or own is None or layer.eps.requires_grad or _steps_changed(layer, SumAggregation) is not None:
        return original(layer, x, edge_index, size)
    x = computed(x)
    sources, own = x if isinstance(x, (tuple, list)) else (x, x)
    out = layer.propagate(edge_index, x=(sources, own), size=size)
    if out.dtype != own.dtype or out.shape != own.shape:
        return layer.nn(out + (1 + layer.eps) * own)
    return layer.nn(out.add_(own, alpha=1 + float(layer.eps)))


def gat_conv(
    original: Any,
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_attr: Optional[Tensor] = None,
    size: Any = None,
    return_attention_weights: Optional[bool] = None,
) -> Any:
    """The forward of GATConv."""
    x = computed(x)
    plain = edge_attr is None and size is None and return_attention_weights is None
    plain = plain and type(layer) is GATConv and _is_plain(edge_index)
    fits = plain and _gat_unfit(layer) is None and _fits(layer.lin, x, edge_index)
    if not note_choice(layer, edge_index.graph, fits):
        edge_index = in_any_order(edge_index, edge_attr)
        return original(layer, x, edge_index, edge_attr, size, return_attention_weights)
    edges = edge_index.edges
    if layer.add_self_loops:
        edges = edges.without_loops().with_loops(any_order=True)
    dropout_p = layer.dropout if layer.training else 0.0
    relation, vectors = edges.relation, (layer.att_src, layer.att_dst)
    weight, slope, constant = layer.lin.weight, layer.negative_slope, constant_of(layer)
    out = attend(relation, x, weight, *vectors, slope, dropout_p, Rounding.PYG, constant)
    out = out.flatten(1) if layer.concat else out.mean(1)
    return out if layer.bias is None else out + layer.bias


def _gat_unfit(layer: Any) -> Optional[str]:
    """Why a GATConv cannot run in one piece; None where it can."""
    if layer.lin is None or getattr(layer, "res", None) is not None:
        return "sources and destinations have linear maps of their own" if layer.lin is None else "it has a residual"
    why = _steps_changed(layer, SumAggregation) or _linear_changed(layer, "lin", bias=False)
    same = why is not None or layer.att_src.dtype == layer.att_dst.dtype == layer.lin.weight.dtype
    return why if same else "its parameters differ in dtype"


def gatv2_conv(
    original: Any, layer: Any, x: Any, edge_index: Any, edge_attr: Optional[Tensor] = None, *args: Any, **kwargs: Any
) -> Any:
    """The forward of GATv2Conv: its steps, of which one linear map is computed again in backward."""
    edge_index = in_any_order(edge_index, edge_attr)
    return _attention(original, layer, x, edge_index, GATv2Conv, "lin_l", edge_attr, *args, **kwargs)


def transformer_conv(original: Any, layer: Any, x: Any, edge_index: Any, *args: Any, **kwargs: Any) -> Any:
    """The forward of TransformerConv: its steps, of which one linear map is computed again in backward."""
    return _attention(original, layer, x, edge_index, TransformerConv, "lin_value", *args, **kwargs)


def _attention(
    original: Any, layer: Any, x: Any, edge_index: Any, kind: Any, name: str, *args: Any, **kwargs: Any
) -> Any:
    if not torch.is_grad_enabled():
        return original(layer, x, edge_index, *args, **kwargs)
    x = computed(x)
    lin, rows = getattr(layer, name), x[0] if isinstance(x, (tuple, list)) else x
    again = type(layer) is kind and _steps_changed(layer) is None and _maps(lin, rows) and disturbed() is None
    with computed_again(lin) if again else nullcontext():
        return original(layer, x, edge_index, *args, **kwargs)


def _is_plain(edge_index: SplitEdgeIndex) -> bool:
    """Whether messages go from own and other nodes to own nodes, and nothing computes in little memory."""
    check_readers()  # nothing else here reads the edge index
    return not edge_index.flipped and edge_index.edges.square and not low_memory.active()


def _fits(lin: Any, x: Any, edge_index: SplitEdgeIndex) -> bool:
    """Whether rows are those of all sources, and layers may be fused."""
    return _maps(lin, x) and x.shape[0] == edge_index.edges.rows("u") and disturbed() is None


def _maps(lin: Any, x: Any) -> bool:
    """Whether a linear map on rows is the product with its weight."""
    return (
        as_made(lin, Linear)
        and type(x) in (Tensor, nn.Parameter, DeferredTensor)
        and x.layout == torch.strided
        and x.dim() == 2
        and product_dtype(x, lin.weight) is not None
        and x.shape[1] == lin.in_channels
    )


def _linear_changed(layer: Any, *names: str, bias: bool = True) -> Optional[str]:
    """What keeps linear maps of a layer from being products with their weights; None where nothing does.

    :param bias: whether they may have one
    """
    for name in names:
        lin = getattr(layer, name)
        why = changed(lin, Linear)
        if why is None and not bias and lin.bias is not None:
            why = "it has a bias"
        if why is not None:
            return f"{name}: {why}"
    return None


def _steps_changed(layer: Any, reduces: Any = None) -> Optional[str]:
    """What keeps propagate from running the steps of the layer's class alone, from sources to destinations; None where
    nothing does.

    :param reduces: the class of aggregation that it has to have
    """
    own = next((name for name in STEPS if name in vars(layer)), None)
    if own is not None:
        return f"its {own} is replaced"
    if any(getattr(layer, name) for name in HOOKS):
        return "it has hooks"
    if layer.explain or layer.decomposed_layers != 1:
        return "it explains itself" if layer.explain else "it has decomposed_layers"
    if layer.flow != "source_to_target":
        return f"its flow is {layer.flow}"
    why = None if reduces is None else changed(layer.aggr_module, reduces)
    return None if why is None else f"its aggregation: {why}"


UNFIT: Dict[Any, Callable[[Any], Optional[str]]] = {
    SAGEConv: _sage_unfit,
    GCNConv: _gcn_unfit,
    GATConv: _gat_unfit,
}
"""Layers that run in one piece where nothing speaks against it, and what does."""
