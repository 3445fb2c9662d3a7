"""Fused graph convolution of PyG: ``out = right . A (left . x W') + b``, with a factor for each source and destination.

As separate steps, the product, the scaled product, the sum and the scaled sum are a tensor each. Here both are scaled
in place. If x is a result of batch norm, it is recomputed instead of saved (:func:`sar.autograd.fused.recompute.save`).
With g the gradient of the result and ``s = left . A' (right . g)``, the gradients are ``s' x`` of W and ``s W`` of x.
Steps that run one by one send the same.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import abi, session as _session
from sar.autograd import memo
from sar.autograd.compile import uncompiled
from sar.autograd.once import differentiable_once
from sar.autograd.types import Agreed, Relation, anchor

from .recompute import Held, Saved, rows_of, save
from .row_blocks import sums

__all__ = ["normalized_sum"]


@uncompiled
def normalized_sum(
    relation: Relation, x: Tensor, weight: Tensor, bias: Optional[Tensor], left: Tensor, right: Tensor
) -> Tensor:
    """Collective in forward and backward.

    :param x: ``[num_src, i]``
    :param weight: ``[o, i]``
    :param bias: ``[o]``
    :param left: ``[num_src]``, constant
    :param right: ``[num_dst]``, constant
    :returns: ``[num_dst, o]``
    """
    _session.current().follow_config()
    agreed = Agreed()
    x = x.contiguous()
    out: Tensor = _NormalizedSum.apply(anchor(), x, weight, bias, left, right, relation, agreed, save(x))
    return out if agreed.bits or any(t is not None and t.requires_grad for t in (x, weight, bias)) else out.detach()


class _NormalizedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        left: Tensor,
        right: Tensor,
        relation: Relation,
        agreed: Agreed,
        saved: Tuple[Saved, Optional[Held]],
    ) -> Tensor:
        spec = abi.AggregateSpec(relation.index, "copy_u", "sum")
        any_, for_x, for_weight, *_ = ctx.needs_input_grad
        u = x.mm(weight.t()).mul_(left.unsqueeze(1))
        out = u.new_empty((relation.num_dst, u.shape[1]))
        agreed.bits = memo.forward(relation, spec, abi.GRAD_U if any_ and (for_x or for_weight) else 0, u, None, out)
        del u
        out.mul_(right.unsqueeze(1))
        if bias is not None:
            out.add_(bias)
        rows_saved, ctx.held = saved
        ctx.save_for_backward(*rows_saved, weight, left, right)
        ctx.relation, ctx.spec, ctx.agreed = relation, spec, agreed.bits
        return out

    @staticmethod
    @differentiable_once("GCNConv")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        *rows_saved, weight, left, right = ctx.saved_tensors
        saved = Saved(*rows_saved)
        _, for_x, for_weight, for_bias, *_ = ctx.needs_input_grad
        grad_bias = grad.sum(0) if for_bias else None
        grad_x = grad_weight = None
        if ctx.agreed & abi.GRAD_U:
            at_sources = grad.new_empty((len(left), grad.shape[1])) if for_x or for_weight else None
            scaled = grad * right.unsqueeze(1)
            abi.aggregate_backward(ctx.relation.handle, ctx.spec, ctx.agreed, None, None, scaled, at_sources, None)
            del scaled
            if at_sources is not None:
                at_sources.mul_(left.unsqueeze(1))
                if for_weight:
                    x = rows_of(saved, ctx.held)
                    grad_weight = at_sources.t().mm(x) if for_x else sums(x, at_sources)[0]
                    del x
                grad_x = at_sources.mm(weight) if for_x else None
        return None, grad_x, grad_weight, grad_bias, None, None, None, None, None
