"""Sums over the out-edges of source nodes, for message passing on reversed graphs.

For every own node j as a source, over the edges of all workers that leave it::

    out[j, c] = sum over out-edges (j -> i) of e[ji, head of c] * v[i, c]

That is the backward movement of an aggregation (partial sums of boundary rows return to their owners), so its own
gradients are forward movements. Wire: w numbers per boundary row, each way, and once more for the gradient of e.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import torch
from torch import Tensor

from sar._engine import abi, schedule, session as _session, storage
from sar.distributed.agreement import anywhere

from .double_backward import calling_layer, differentiable_once
from .types import Relation, anchor


def sum_to_sources(relation: Relation, e: Optional[Tensor], v: Optional[Tensor]) -> Tensor:
    """``out[j] = sum over out-edges (j -> i) of e[ji] * v[i]``; a factor that is ``None`` is 1. Collective.

    :param e: ``[num_edges, h]`` float32, float64 or bfloat16, where h divides w; w itself where v is ``None``
    :param v: ``[num_dst, w]``
    :returns: ``[num_src, w]``
    """
    _session.current().follow_config()
    given = [t for t in (e, v) if t is not None]
    if not given:
        raise ValueError("a sum over out-edges needs values of edges, of destinations, or both")
    if v is None:
        v = given[0].new_ones(relation.num_dst, given[0].shape[1])
    # whether anybody needs a gradient, since backward is collective too
    grad = torch.is_grad_enabled()
    agreed = anywhere(*(grad and t is not None and t.requires_grad for t in (e, v)))
    out: Tensor = _SumToSources.apply(anchor(), e, v, relation, agreed)
    return out if any(agreed) else out.detach()


class _SumToSources(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, e: Optional[Tensor], v: Tensor, relation: Relation, agreed: Sequence[bool]
    ) -> Tensor:
        e, v = None if e is None else e.contiguous(), v.contiguous()
        ctx.relation, ctx.agreed = relation, agreed
        ctx.name = calling_layer("a sum over out-edges")
        ctx.spec = abi.AggregateSpec(relation.index, "copy_u" if e is None else "u_mul_e", "sum")
        ctx.save_for_backward(e, v)
        ctx.dtype = v.dtype if e is None else torch.promote_types(v.dtype, e.dtype)
        out = storage.empty((relation.num_src, v.shape[1]), ctx.dtype)
        abi.aggregate_backward(relation.handle, ctx.spec, abi.GRAD_U, None, e, v, out, None)
        ctx.operation = schedule.last()
        return out

    @staticmethod
    @differentiable_once(lambda ctx: ctx.name)
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        e, v = ctx.saved_tensors
        relation, grad = ctx.relation, grad.contiguous()
        grad_e = grad_v = None
        if ctx.agreed[0]:
            grad_e = torch.empty_like(e)
            abi.aggregate_backward(relation.handle, ctx.spec, abi.GRAD_E, grad, e, v, None, grad_e, ctx.operation)
        if ctx.agreed[1]:
            grad_v = torch.empty_like(v)
            abi.aggregate_forward(relation.handle, ctx.spec, 0, grad, e, grad_v, ctx.operation)
        needs = ctx.needs_input_grad
        return None, grad_e if needs[1] else None, grad_v if needs[2] else None, None, None
