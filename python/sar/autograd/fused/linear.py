"""Linear maps multiplied by :mod:`.row_blocks`, and such whose result is computed again in backward where an expression
read it, instead of saved by that.

The rows that are multiplied are saved in any case, for the gradient of the weight.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ContextManager, Optional, Tuple

import torch
from torch import Tensor, nn

from sar._engine import columns
from sar.autograd import recomputed
from sar.autograd.autocast import lowered
from sar.autograd.double_backward import differentiable_once

from .prepared import instead_of_forward
from .row_blocks import affine, multiply, over_rows


def computed_again(module: nn.Module) -> ContextManager[None]:
    """While this is entered, results of a module are computed again in backward, if expressions read them.

    :param module: as its class made it, and ``F.linear`` with its ``weight`` and ``bias``, of two dimensions. Nobody
        but expressions may see its results
    """
    return instead_of_forward(module, partial(_linear, module))


def _linear(module: Any, x: Tensor) -> Tensor:
    product = _Product()
    out = linear(x, module.weight, module.bias, product)
    if out.requires_grad:
        recomputed.note(out, product.again)
    return out


class _Product:
    """The result, computed again."""

    ctx: Any = None

    def again(self) -> Tensor:
        """``[n, o]``; stays until backward of the linear map, for others that read it."""
        ctx = self.ctx
        if ctx.kept is None:
            x, weight, bias = ctx.saved_tensors  # once: torch.utils.checkpoint allows no more
            ctx.kept = x, weight, affine(x, weight.t(), bias)
        out: Tensor = ctx.kept[2]
        return out


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, product: Optional[_Product] = None) -> Tensor:
    """``F.linear`` of two dimensions, multiplied by :mod:`.row_blocks`. ``product`` can compute it again."""
    out: Tensor = _Linear.apply(*map(lowered, (x, weight, bias)), product or _Product())
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], product: _Product) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.kept, product.ctx = None, ctx
        return affine(x, weight.t(), bias)

    @staticmethod
    @differentiable_once("a linear map in front of messages")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, weight, _ = ctx.saved_tensors if ctx.kept is None else ctx.kept
        ctx.kept = None
        for_x, for_weight, for_bias, _ = ctx.needs_input_grad
        return (
            multiply(grad, weight) if for_x else None,
            over_rows(grad, x) if for_weight else None,
            columns.totals(grad).to(grad.dtype) if for_bias else None,
            None,
        )
