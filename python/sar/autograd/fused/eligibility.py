"""Checks that a layer may be fused: plain modules, no hooks."""

from __future__ import annotations

from typing import Any, Dict, Optional
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sar.autograd.autocast import product_dtype
from sar.autograd.double_backward import transformed
from sar.autograd.dtypes import FLOATS
from sar.config import Config
from sar.graph.manager import GraphShardManager

from . import low_memory
from .prepared import FUSED, choice_of, plain_forward

_choices: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether each layer ran fused on a graph of ours when it last ran."""


def note_choice(layer: nn.Module, graph: Any, fused: bool) -> bool:
    """Notes for :func:`sar.stats` whether a layer runs fused; returns it. A prepared layer does only where all workers
    agreed on it."""
    choice = choice_of(layer)
    fused = fused and (choice is None or choice.became == FUSED)
    if isinstance(graph, GraphShardManager):
        _choices[layer] = fused
    return fused


def all_fit(layer: nn.Module, fits: bool) -> bool:
    """Whether a layer, whose fused form sends something else than its steps, fits on every worker: as they agreed when
    it was prepared, else they are asked now, which is collective.

    :raises ValueError: it was prepared, and no longer fits on this worker
    """
    choice = choice_of(layer)
    if choice is None:
        return low_memory.all_fit(fits)
    if choice.became != FUSED:
        return False
    if not fits:
        raise ValueError(
            f"{choice.path or 'the model'} ({choice.kind}) was prepared to run in one piece on all workers, and what "
            "it is called with, or what was changed in it since, does not allow that here: call sar.restore(model), "
            "and sar.prepare again if the change is to stay"
        )
    return True


def layer_choices() -> Dict[str, Dict[str, int]]:
    """How many modules of each class ran fused and separately: ``{"SAGEConv": {"fused": 3, "separate": 0}}``."""
    found: Dict[str, Dict[str, int]] = {}
    for layer, fused in _choices.items():
        counts = found.setdefault(type(layer).__name__, {"fused": 0, "separate": 0})
        counts["fused" if fused else "separate"] += 1
    return found


def changed(module: Any, kind: Any) -> Optional[str]:
    """What keeps a call of a module from running ``forward`` of a class and nothing else; None where nothing does."""
    if type(module) is not kind:
        return f"of class {type(module).__name__}"
    if not plain_forward(module):  # libraries replace it in one object
        return "its forward is replaced"
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return "it has hooks" if any(hooks) else None


def as_made(module: Any, kind: Any) -> bool:
    """Whether calling a module runs its class's ``forward`` and nothing else: no hooks, no replaced methods."""
    return changed(module, kind) is None


def linear_changed(layer: Any, *names: str) -> Optional[str]:
    """What keeps calls of linear maps of a layer from being products with their weights; None where nothing does."""
    for name in names:
        fc: Any = getattr(layer, name, None)
        why = "not there" if fc is None else changed(fc, nn.Linear)
        if why is None and fc.weight.dtype not in FLOATS:
            why = f"of {fc.weight.dtype}"
        if why is not None:
            return f"{name}: {why}"
    return None


def sage_unfit(layer: Any, aggregator: str) -> Optional[str]:
    """Why a SAGEConv of DGL or ``sar.nn`` cannot run in one piece; None where it can."""
    if aggregator != "mean":
        return f"its aggregator is {aggregator!r}"
    why = linear_changed(layer, "fc_self", "fc_neigh")
    return "fc_neigh has a bias" if why is None and layer.fc_neigh.bias is not None else why


def gat_unfit(layer: Any) -> Optional[str]:
    """Why a GATConv of DGL or ``sar.nn`` cannot run in one piece; None where it can."""
    if layer.res_fc is not None:
        return "it has a residual"
    why = linear_changed(layer, "fc")
    if why is None and layer.fc.bias is not None:
        why = "fc has a bias"
    same = why is not None or layer.attn_l.dtype == layer.attn_r.dtype == layer.fc.weight.dtype
    return why if same else "its parameters differ in dtype"


def fits_alone(graph: Any, x: Any, weight: Tensor, width: int) -> bool:
    """Whether a linear map of rows of that width, on those of a full graph, takes them as they are."""
    return (
        disturbed() is None
        and isinstance(graph, GraphShardManager)
        and len(graph._relations) == 1
        and graph.src_is_tgt
        and type(x) in (Tensor, nn.Parameter)
        and x.layout == torch.strided
        and x.dim() == 2
        and x.shape[0] == graph._relation(None).num_src
        and product_dtype(x, weight) is not None
        and x.shape[1] == width
    )


def disturbed() -> Optional[str]:
    """What keeps all layers from being fused; None where nothing does."""
    if not Config.fuse:
        return "sar.Config.fuse is off"
    hooks = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")
    if any(getattr(nn.modules.module, f"_global_{name}") for name in hooks):
        return "there are hooks for all modules"
    return "inside a transform of torch.func" if transformed() else None
