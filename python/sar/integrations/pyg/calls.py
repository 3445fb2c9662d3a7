"""Calls of layers that pass messages: what stands for their forward where the edges are of a split graph, and what
keeps an aggregation of messages from being taken for a pool of nodes.

Only the call is replaced, for all layers together. A layer whose class has a forward of its own runs it.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Tuple

from torch_geometric import nn as pyg

from sar.autograd.compile import uncompiled
from sar.autograd.fused.prepared import instead_of_forward
from sar.autograd.types import class_of
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.integrations.replacements import given

from . import all_nodes, fused, hetero, layers, over_nodes, super_gat

FORWARDS: Dict[Any, Callable[..., Any]] = {
    pyg.SAGEConv: fused.sage_conv,
    pyg.GCNConv: fused.gcn_conv,
    pyg.GINConv: fused.gin_conv,
    pyg.GATConv: fused.gat_conv,
    pyg.GATv2Conv: fused.gatv2_conv,
    pyg.TransformerConv: fused.transformer_conv,
    pyg.AGNNConv: layers.loops_added,
    pyg.FeaStConv: layers.loops_added,
    pyg.LabelPropagation: all_nodes.label_propagation,
    pyg.HGTConv: hetero.hgt_conv,
    pyg.SuperGATConv: super_gat.super_gat_conv,
}
"""Layers, and what stands for their forward: functions of the original and its arguments."""

_functions = {kind.forward: function for kind, function in FORWARDS.items()}
on_edges = given(SplitEdgeIndex)
"""Whether the edges that a layer is given are those of a split graph."""


def concerned(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether a layer, the first argument, is to do anything else than without this package."""
    return over_nodes.seen.several or ("forward" not in args[0].__dict__ and on_edges(args, kwargs))


def called(original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """``MessagePassing.__call__``."""
    before, over_nodes.here.layer = over_nodes.here.layer, layer
    try:
        function = None if "forward" in layer.__dict__ else _functions.get(class_of(layer).forward)
        if function is not None and on_edges(args, kwargs):
            return _called(original, layer, function, args, kwargs)
        over_nodes.refuse_neighbours(layer, args, kwargs)
        return original(layer, *args, **kwargs)
    finally:
        over_nodes.here.layer = before


def instead(function: Any, original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of :data:`FORWARDS`, for a layer that may be called with edges of another graph as well."""
    return function(original, layer, *args, **kwargs) if on_edges(args, kwargs) else original(layer, *args, **kwargs)


@uncompiled
def _called(original: Any, layer: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """Calls a layer, with its hooks, and has a function in the place of its forward."""
    with instead_of_forward(layer, functools.partial(function, class_of(layer).forward, layer)):
        return original(layer, *args, **kwargs)
