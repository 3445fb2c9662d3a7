"""What :func:`sar.prepare` makes of layers, normalizations and pools of torch_geometric."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, Optional

from torch import nn
from torch_geometric import nn as pyg

from sar.autograd.fused.eligibility import disturbed
from sar.autograd.fused.prepared import FUSED, NODES, REFUSED, STEPS, UNTOUCHED, Plan

from . import calls, fused, over_nodes, patches, scripts, transformers, unsupervised

_FORWARDS: Dict[str, Callable[..., Any]] = {
    path: functools.partial(calls.instead, function) if concerned is calls.on_edges else function
    for concerned, methods in [
        (calls.on_edges, {f"nn.{kind.__name__}.forward": function for kind, function in calls.FORWARDS.items()}),
        *(each[1:] for each in patches.METHODS),
    ]
    for path, function in methods.items()
}
"""What stands for the forward of each class, and is given the original."""
_STEPS = "the layer's own; its messages are computed in the engine, or in blocks of edges"
_LOSSES = "its losses are means over the edges, pairs and nodes of all workers"
_AGAIN = "the layer's own; one linear map is computed again in backward"


def plan(module: nn.Module, inside: bool) -> Optional[Plan]:
    """What a module becomes; None where it is none of torch_geometric's.

    :param inside: whether it is a part of a layer that passes messages
    """
    kind = next((k for k in type(module).__mro__ if k.__module__.startswith("torch_geometric.nn.")), None)
    if kind is None:
        return None
    name = kind.__name__
    attends = transformers.instead_of(module)
    if attends is not None:
        return Plan(NODES, attends[1], attends[0])
    path = f"nn.{name}.forward"
    if path in scripts.WHOLE:
        return Plan(REFUSED, scripts.WHOLE[path])
    if isinstance(module, over_nodes.NEIGHBOURS):
        return Plan(REFUSED, "it finds neighbours among the points of all workers")
    methods = unsupervised.methods_of(module)
    if methods:
        whole = type(module).forward is pyg.DeepGraphInfomax.forward
        return Plan(NODES, _LOSSES, unsupervised.dgi_forward if whole else None, methods)
    if isinstance(module, pyg.aggr.Aggregation):
        if inside:
            return Plan(UNTOUCHED, "it reduces the messages of its layer")
        if isinstance(module, over_nodes.ORDERED):
            return Plan(REFUSED, "as a pool it orders the nodes of all workers")
        return Plan(NODES, "it reduces over the nodes of each graph", _unwrapped(module))
    forward = None
    if path in _FORWARDS and type(module).forward is getattr(pyg, name).forward:
        forward = functools.partial(_FORWARDS[path], _unwrapped(module))
    if path in patches.NORMS:
        if getattr(module, "mode", "graph") == "node":
            return Plan(UNTOUCHED, "it treats each row by itself")
        return Plan(NODES, "its statistics are those of the nodes of each graph", forward)
    if isinstance(module, pyg.GPSConv):
        return Plan(NODES, "its nodes attend to those of all workers", forward)
    if type(module) in fused.UNFIT:
        why = disturbed() or fused.UNFIT[type(module)](module)
        first = why is None and type(module) is pyg.SAGEConv and fused.product_is_narrower(module)
        fits = "the product first, which is narrower" if first else "nothing looks at its steps"
        return Plan(FUSED if why is None else STEPS, why or fits, forward)
    if isinstance(module, pyg.MessagePassing) or forward is not None:
        return Plan(STEPS, _AGAIN if name in ("GATv2Conv", "TransformerConv") else _STEPS, forward)
    return None


def _unwrapped(module: nn.Module) -> Any:
    """The forward of a module's class as torch_geometric has it."""
    return inspect.unwrap(type(module).forward)
