"""Checks that a layer may be fused: plain modules, no hooks."""

from __future__ import annotations

from typing import Any, Dict
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sar.autograd.once import transformed
from sar.config import Config
from sar.graph.manager import GraphShardManager

__all__ = ["as_made", "fits_alone", "layer_choices", "note_choice", "plain_linear", "undisturbed"]

_choices: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether each layer ran fused on a graph of ours when it last ran."""


def note_choice(layer: nn.Module, graph: Any, fused: bool) -> bool:
    """Notes for :func:`sar.stats` whether a layer runs fused; returns it."""
    if isinstance(graph, GraphShardManager):
        _choices[layer] = fused
    return fused


def layer_choices() -> Dict[str, Dict[str, int]]:
    """How many modules of each class ran fused and separately: ``{"SAGEConv": {"fused": 3, "separate": 0}}``."""
    found: Dict[str, Dict[str, int]] = {}
    for layer, fused in _choices.items():
        counts = found.setdefault(type(layer).__name__, {"fused": 0, "separate": 0})
        counts["fused" if fused else "separate"] += 1
    return found


def as_made(module: Any, kind: Any) -> bool:
    """Whether calling a module runs its class's ``forward`` and nothing else: no hooks, no replaced methods."""
    if type(module) is not kind or "forward" in vars(module):  # libraries replace it in one object
        return False
    return not any(
        (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    )


def plain_linear(module: Any) -> bool:
    """Whether calling a module is multiplying by its weight."""
    return as_made(module, nn.Linear) and module.weight.dtype in (torch.float32, torch.float64)


def fits_alone(graph: Any, x: Any, fc: Any) -> bool:
    """Whether a linear map on rows of a full graph is only the product with its weight."""
    return (
        undisturbed()
        and isinstance(graph, GraphShardManager)
        and len(graph._relations) == 1
        and graph.src_is_tgt
        and type(x) in (Tensor, nn.Parameter)
        and x.layout == torch.strided
        and x.dim() == 2
        and x.shape[0] == graph._relation(None).num_src
        and plain_linear(fc)
        and x.dtype == fc.weight.dtype
        and x.shape[1] == fc.in_features
    )


def undisturbed() -> bool:
    """Whether layers may be fused at all: not switched off, no autocast, no hooks for all modules, no transform of
    torch.func."""
    return Config.fuse and not _autocast() and not _global_hooks() and not transformed()


def _global_hooks() -> bool:
    """Whether hooks are registered for all modules."""
    made = torch.nn.modules.module
    names = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")
    return any(getattr(made, f"_global_{name}") for name in names)


def _autocast() -> bool:
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # torch before 2.4 has a function for each device
        return bool(torch.is_autocast_cpu_enabled())
