"""Replacements in DGL that let its layers run on graphs split over workers.

Layers are not edited. They work because graph managers have the methods that layers call on a graph. If a layer
bypasses these methods, the function that it calls is replaced here by one that checks the graph's type first. On DGL's
own graphs all of them behave as before.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import dgl
import torch
from torch import Tensor

from sar.autograd.autocast import lowered
from sar.autograd.compile import compiling as _compiling
from sar.autograd.fused import gat, low_memory, scaled_product
from sar.autograd.fused.eligibility import changed, gat_unfit
from sar.autograd.fused.graph_conv import graph_conv as in_one_piece
from sar.autograd.fused.prepared import instead_of_forward
from sar.autograd.types import class_of
from sar.distributed.agreement import anywhere, largest_of_all
from sar.graph.counts import Counts
from sar.graph.edge_tensor.softmax import edge_softmax
from sar.graph.manager import GraphShardManager
from sar.graph.message_passing.operators import reduced_messages, values_of_edges
from sar.graph.queries import GraphQueries
from sar.graph.readout import graph_reduce, graph_softmax
from sar.graph.refused import GraphIndex
from sar.graph.reversed import ReversedGraph
from sar.integrations.replacements import Patches, apply_together, given

from . import OTHERWISE
from .transforms import FUNCTIONS, REFUSED, TRANSFORMS

_applied: List[Patches] = []
"""What is replaced now, in the order in which it was."""


def adapt(names: Sequence[Patches] = ()) -> None:
    """Makes DGL's layers work on graph managers. Idempotent.

    :param names: further replacements, made with these or not at all
    :raises RuntimeError: this version of DGL lacks a name that is replaced; nothing is replaced then
    """
    wanted = [*([] if _applied else [_layer_patches()]), *names]
    apply_together(wanted)
    _applied.extend(wanted)


def restore() -> None:
    """Undoes all replacements."""
    while _applied:
        _applied.pop().undo()


def _layer_patches() -> Patches:
    patches = Patches("dgl", OTHERWISE, given(GraphQueries, ReversedGraph, GraphIndex, Counts))
    for name, function in STEPS.items():
        owner, _, attribute = f"dgl.{name}".rpartition(".")
        patches.wrap(owner, attribute, function, "reductions in the engine")
    for name, function in FUNCTIONS.items():
        patches.wrap_within("dgl", f"dgl.{name}", function, "graphs made of graphs")
    for name, function in REFUSED.items():
        patches.wrap("dgl", name, function, "refused: needs the whole graph")
    for transform, function in TRANSFORMS.items():
        if hasattr(dgl.transforms, transform):  # some came with later versions, and nothing here needs them
            patches.wrap(f"dgl.transforms.{transform}", "__call__", function, "graphs made of graphs")
    for name, function in SPECIAL.items():
        patches.wrap(f"dgl.nn.pytorch.{name}", "forward", function, "fused, or over all nodes")
    patches.wrap("dgl.nn.pytorch.TypedLinear", "forward", _typed_linear, "edges in another order", _presorted)
    return patches


@functools.cache
def layers_with_graph() -> Tuple[Any, ...]:
    """The layers of dgl.nn that are called with a graph."""
    kinds = [k for k in vars(dgl.nn.pytorch).values() if isinstance(k, type) and issubclass(k, torch.nn.Module)]
    kinds = [kind for kind in kinds if kind.__module__.startswith("dgl.")]
    return tuple(k for k in kinds if list(inspect.signature(k.forward).parameters)[1:2] in (["graph"], ["g"]))


# ---- functions that layers call ---------------------------------------------


def _edge_softmax(original: Any, gidx: Any, logits: Any, eids: Any = "__ALL__", norm_by: str = "dst") -> Any:
    return edge_softmax(gidx.manager, logits, eids, norm_by)


def _gspmm(original: Any, gidx: Any, *args: Any) -> Any:
    return reduced_messages(gidx.manager, *args)


def _gsddmm(original: Any, gidx: Any, *args: Any) -> Any:
    return values_of_edges(gidx.manager, *args)


def _segment_reduce(original: Any, seglen: Any, value: Tensor, reducer: str = "sum") -> Any:
    return graph_reduce(seglen, value, reducer)


def _segment_softmax(original: Any, seglen: Any, value: Tensor) -> Any:
    return graph_softmax(seglen, value)


# ---- layers ------------------------------------------------------------------


def _presorted(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether a typed linear map is told that its rows are sorted. What torch.compile traces has no blocks of edges."""
    return bool(kwargs.get("sorted_by_type", len(args) > 3 and args[3])) and not _compiling()


def _typed_linear(original: Any, layer: Any, x: Tensor, x_type: Tensor, sorted_by_type: bool = False) -> Tensor:
    """``presorted`` speaks of the order of a whole graph's edges; messages are computed in blocks of another order."""
    if sorted_by_type and len(x_type) > 1 and bool((x_type[1:] < x_type[:-1]).any()):
        sorted_by_type = False
    return original(layer, x, x_type, sorted_by_type)


def _sage_conv(original: Any, layer: Any, graph: Any, feat: Any, edge_weight: Any = None) -> Any:
    """The mean of a full graph in one piece, where the layer's two linear maps are no more than that."""
    out = scaled_product.sage_conv(graph, layer, feat, edge_weight, layer._aggre_type)
    return original(layer, graph, feat, edge_weight) if out is None else out


def _gat_conv(
    original: Any, layer: Any, graph: Any, feat: Any, edge_weight: Any = None, get_attention: bool = False
) -> Any:
    """The whole layer in one piece, where it has one linear map and nothing looks at the attention. Either way its
    result under autocast, where DGL's own graphs raise an error, has the type of its rows."""
    out = None
    if _parts_changed(layer) is None:
        slope, dropout_p = layer.leaky_relu.negative_slope, layer.attn_drop.p if layer.attn_drop.training else 0.0
        out = gat.convolve(graph, layer, feat, edge_weight, get_attention, slope, dropout_p)
    if out is not None:
        return out
    found = original(layer, graph, feat, edge_weight, get_attention)
    return (lowered(found[0]), *found[1:]) if get_attention else lowered(found)


def _parts_changed(layer: Any) -> Optional[str]:
    parts = {"attn_drop": torch.nn.Dropout, "leaky_relu": torch.nn.LeakyReLU}
    whys = ((name, changed(getattr(layer, name), kind)) for name, kind in parts.items())
    return next((f"{name}: {why}" for name, why in whys if why is not None), None)


def gat_conv_unfit(layer: Any) -> Optional[str]:
    """Why a GATConv cannot run in one piece; None where it can."""
    return _parts_changed(layer) or gat_unfit(layer)


@contextlib.contextmanager
def by_columns(model: torch.nn.Module) -> Iterator[None]:
    """Has each GraphConv of a model run by blocks of columns, in inference."""
    with contextlib.ExitStack() as stack:
        for layer in model.modules():
            if class_of(layer) is dgl.nn.GraphConv and "forward" not in vars(layer):
                stack.enter_context(instead_of_forward(layer, functools.partial(graph_conv, layer)))
        yield


def graph_conv(layer: Any, graph: Any, feat: Any, weight: Any = None, edge_weight: Any = None) -> Any:
    """The forward of a GraphConv: in one piece where it is given no weights, and nodes have the in-edges they need."""
    plain = weight is None and edge_weight is None and isinstance(graph, GraphShardManager)
    plain = plain and (layer._allow_zero_in_degree or low_memory.active() or bool((graph.in_degrees() != 0).all()))
    out = in_one_piece(graph, layer, feat, layer._norm) if plain else None
    return dgl.nn.GraphConv.forward(layer, graph, feat, weight, edge_weight) if out is None else out


def _gated_graph_conv(original: Any, layer: Any, graph: Any, feat: Tensor, etypes: Any = None) -> Any:
    """With edge types, the layer calls the graph once for each type that occurs, which differs between workers.

    The same sum, as one aggregation for each type that occurs on any worker: ``sum over types of A_t W_t h``.
    """
    if not isinstance(graph, GraphShardManager) or etypes is None:
        return original(layer, graph, feat, etypes)
    kinds = layer._n_etypes
    if etypes.numel() and not (int(etypes.min()) >= 0 and int(etypes.max()) < kinds):
        raise ValueError(f"edge type indices out of range [0, {kinds})")
    occurs = anywhere(*torch.bincount(etypes, minlength=kinds).clamp(max=1).tolist())
    chosen = [kind for kind, found in enumerate(occurs) if found]
    pad = feat.new_zeros((feat.shape[0], layer._out_feats - feat.shape[1]))
    feat = torch.cat([feat, pad], -1)
    fn = dgl.function
    with graph.local_scope():
        for _ in range(layer._n_steps):
            total = feat.new_zeros(feat.shape)
            for kind in chosen:
                graph.srcdata["h"] = layer.linears[kind](feat)
                graph.edata["w"] = (etypes == kind).to(feat.dtype)
                graph.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "a"))
                total = total + graph.dstdata["a"]
            feat = layer.gru(total, feat)
    return feat


def _label_propagation(original: Any, layer: Any, g: Any, labels: Tensor, mask: Any = None) -> Any:
    """Numbers of classes become columns, as many as the largest label of any worker asks for."""
    if isinstance(g, GraphShardManager) and (labels.dim() == 1 or labels.shape[1] == 1):
        flat = labels.view(-1)
        most = largest_of_all(int(flat.max()) if len(flat) else 0)
        if most:
            labels = torch.nn.functional.one_hot(flat, most + 1).float()
    return original(layer, g, labels, mask)


STEPS: Dict[str, Callable[..., Any]] = {
    "ops.edge_softmax.edge_softmax_internal": _edge_softmax,
    "ops.spmm.gspmm_internal": _gspmm,
    "ops.sddmm.gsddmm_internal": _gsddmm,
    "ops.segment.segment_reduce": _segment_reduce,
    "ops.segment.segment_softmax": _segment_softmax,
}
"""Functions that layers of DGL call."""

SPECIAL: Dict[str, Callable[..., Any]] = {
    "SAGEConv": _sage_conv,
    "GATConv": _gat_conv,
    "GatedGraphConv": _gated_graph_conv,
    "LabelPropagation": _label_propagation,
}
"""Layers of dgl.nn.pytorch, by what stands for their forward."""
