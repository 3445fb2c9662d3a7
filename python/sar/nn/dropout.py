"""Dropout modules of a prepared model: see :mod:`sar.autograd.fused.dropout` for what they drop."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor, nn

from sar.autograd.compile import compiling, uncompiled
from sar.autograd.double_backward import differentiable_once
from sar.autograd.fused.deferred import DeferredTensor
from sar.autograd.fused.dropout import Drop, keys_of, several_types
from sar.autograd.fused.prepared import DROPOUT, Plan, forward_of_class, prepared
from sar.autograd.fused.recompute import Recipe
from sar.distributed.agreement import agreed_seed, on_every_rank

__all__ = ["plan"]

_KEPT = ("ReluBackward0", "SigmoidBackward0", "TanhBackward0")
"""Save their results."""


def plan(module: nn.Module, path: str) -> Optional[Plan]:
    """What :func:`sar.prepare` makes of a dropout module; None of other modules, and of dropout of attention, whose
    rows are edges."""
    if type(module) is not nn.Dropout or module.p == 0 or module.inplace or path.rpartition(".")[2] == "attn_drop":
        return None
    return Plan(DROPOUT, "its mask is drawn again in backward", _forward)


def _forward(module: nn.Dropout, x: Tensor) -> Tensor:
    """The forward of a prepared dropout module. Collective in training."""
    drawn = module.training and module.p > 0 and not module.inplace
    if compiling() or not drawn or type(x) not in (Tensor, nn.Parameter, DeferredTensor):
        plain: Tensor = forward_of_class(module, x)
        return plain
    return _dropped(module, x)


@uncompiled
def _dropped(module: nn.Dropout, x: Tensor) -> Tensor:
    known = prepared(module)
    graph = None if known is None else known.graph
    # whatever comes below: what a worker was given does not change what it sends
    seed = agreed_seed()
    everywhere = on_every_rank(len(x) if x.dim() else 0) if several_types(graph) else None
    if isinstance(x, DeferredTensor):
        later = x._state.dropout(x, module.p, seed)
        if later is not None:
            return later
        x = x._state.plain(x)
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16) or x.dim() < 2 or x.device.type != "cpu":
        plain: Tensor = forward_of_class(module, x)
        return plain
    drop = Drop(module.p, seed, keys_of(graph, len(x), everywhere))
    out: Tensor = _Dropout.apply(x, drop)
    if out.dim() == 2 and x.is_contiguous() and (x.grad_fn is None or x.grad_fn.name() in _KEPT):
        # a layer that reads the result saves x, which is there anyway
        Recipe(None, drop=drop).note(out, x.detach(), keep=True)
    return out


class _Dropout(torch.autograd.Function):
    """Saves nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, drop: Drop) -> Tensor:
        ctx.drop = drop
        return drop.apply(x)

    @staticmethod
    @differentiable_once("dropout")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, None]:
        return ctx.drop.apply(grad), None
