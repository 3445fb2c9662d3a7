"""Calls of layers that pass messages: what stands for their forward where the edges are of a split graph, and what
keeps an aggregation of messages from being taken for a pool of nodes.

Only the call is replaced, for all layers together. A layer whose class has a forward of its own runs it.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Tuple

from sar.autograd.compile import uncompiled
from sar.autograd.fused.prepared import instead_of_forward
from sar.graph.edge_index.placeholders import SplitNumbers
from sar.graph.edge_tensor.tensor import EdgeTensor
from sar.integrations.replacements import given

from . import all_nodes, fused, hetero, layers, over_nodes, super_gat

__all__ = ["FORWARDS", "called", "concerned"]

FORWARDS: Dict[Any, Callable[..., Any]] = {
    **fused.FORWARDS,
    **layers.FORWARDS,
    **all_nodes.FORWARDS,
    **hetero.FORWARDS,
    **super_gat.FORWARDS,
}
"""Layers, and what stands for their forward: functions of the original and its arguments."""

_functions = {kind.forward: function for kind, function in FORWARDS.items()}
_of_split_graphs = given(SplitNumbers, EdgeTensor)


def concerned(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether a layer, the first argument, is to do anything else than without this package."""
    return over_nodes.seen.several or ("forward" not in args[0].__dict__ and _of_split_graphs(args, kwargs))


def called(original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """``MessagePassing.__call__``."""
    before, over_nodes.here.layer = over_nodes.here.layer, layer
    try:
        function = None if "forward" in layer.__dict__ else _functions.get(type(layer).forward)
        if function is not None and _of_split_graphs(args, kwargs):
            return _instead(original, layer, function, args, kwargs)
        over_nodes.refuse_neighbours(layer, args, kwargs)
        return original(layer, *args, **kwargs)
    finally:
        over_nodes.here.layer = before


@uncompiled
def _instead(original: Any, layer: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """Calls a layer, with its hooks, and has a function in the place of its forward."""
    with instead_of_forward(layer, functools.partial(function, type(layer).forward, layer)):
        return original(layer, *args, **kwargs)
