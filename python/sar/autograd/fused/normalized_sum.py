"""Graph convolution of PyG in little memory: ``out = right . A (left . x W') + b``, a factor for each source and
destination.

As PyG's steps, the product, the scaled product, the sum and the scaled sum are a tensor each. Here both are scaled in
place. If x is a result of batch norm that nobody has read, or ReLU of it, it is computed in blocks of rows, in both
passes, and never exists as a whole; if it was read, it is recomputed instead of saved
(:func:`sar.autograd.fused.recompute.save`). Workers that run the steps one by one send the same.

The sum is a node of autograd between two others, and not a part of them, because backward of a node holds the gradient
that it was given until it returns. So no more than two gradients of the size of the rows exist at a time.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from sar.autograd.aggregate import aggregate
from sar.autograd.compile import uncompiled
from sar.autograd.once import differentiable_once
from sar.autograd.types import Relation

from .deferred import DeferredTensor, computed
from .recompute import Held, Saved, rows_of, save
from .row_blocks import Rows, products, sums

__all__ = ["normalized_sum"]


@uncompiled
def normalized_sum(
    relation: Relation, x: Tensor, weight: Tensor, bias: Optional[Tensor], left: Tensor, right: Tensor
) -> Tensor:
    """Collective in forward and backward.

    :param x: ``[num_src, i]``, which may be deferred
    :param weight: ``[o, i]``
    :param bias: ``[o]``
    :param left: ``[num_src]``, constant
    :param right: ``[num_dst]``, constant
    :returns: ``[num_dst, o]``
    """
    unread = x.unread() if isinstance(x, DeferredTensor) else None
    if unread is None:
        x = computed(x).contiguous()
    source, made_by = (x, None) if unread is None else unread
    u = _ScaledProduct.apply(x, weight, left, save(source), made_by)
    out: Tensor = _ScaledSum.apply(aggregate(relation, "copy_u", "sum", u, None), right, bias)
    return out


class _ScaledProduct(torch.autograd.Function):
    """``left . x W'``. ``saved``: of x, or of what ``made_by`` computes rows of x from."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        left: Tensor,
        saved: Tuple[Saved, Optional[Held]],
        made_by: Optional[Rows],
    ) -> Tensor:
        rows_saved, ctx.held = saved
        ctx.save_for_backward(*rows_saved, weight, left)
        ctx.made_by = made_by
        ctx.gradients = x.gradients if isinstance(x, DeferredTensor) else None
        (out,) = products(rows_saved.source, weight, made_by=made_by) if made_by else [x.mm(weight.t())]
        return out.mul_(left.unsqueeze(1))

    @staticmethod
    @differentiable_once("GCNConv")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        *rows_saved, weight, left = ctx.saved_tensors
        saved = Saved(*rows_saved)
        for_x, for_weight, *_ = ctx.needs_input_grad
        grad.mul_(left.unsqueeze(1))  # nobody else has it
        grad_weight = None
        if for_weight and ctx.made_by is not None:
            (grad_weight,) = sums(saved.source, grad, made_by=ctx.made_by)
        elif for_weight:
            x = rows_of(saved, ctx.held)
            grad_weight = grad.t().mm(x) if for_x else sums(x, grad)[0]
            del x  # before the gradient of it is made
        grad_x = grad.mm(weight) if for_x else None
        if grad_x is not None and ctx.gradients is not None:
            grad_x = ctx.gradients.read(grad_x)
        return grad_x, grad_weight, None, None, None


class _ScaledSum(torch.autograd.Function):
    """``right . out + b``, in the memory of ``out``"""

    @staticmethod
    def forward(ctx: Any, out: Tensor, right: Tensor, bias: Optional[Tensor]) -> Tensor:
        ctx.mark_dirty(out)
        ctx.save_for_backward(right)
        out.mul_(right.unsqueeze(1))
        return out if bias is None else out.add_(bias)

    @staticmethod
    @differentiable_once("GCNConv")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        (right,) = ctx.saved_tensors
        for_sum, _, for_bias = ctx.needs_input_grad
        return grad * right.unsqueeze(1) if for_sum else None, None, grad.sum(0) if for_bias else None
