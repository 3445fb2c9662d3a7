"""Sum and mean over in-edges; rows of other workers are fetched meanwhile.

Forward, for every own node i and column c::

    out[i, c] = reduce over in-edges (j -> i) of u[j, c] * (1 or e[ji, head of c])

In forward the workers agree on whether u or e needs a gradient. A worker whose own tensors need none still takes part
in backward, because the others' gradients depend on rows that it owns. Wire: w numbers per halo row, each way.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import abi, schedule, session as _session, storage

from . import memo
from .double_backward import calling_layer, differentiable_once
from .types import Agreed, Relation, anchor


def aggregate(relation: Relation, message: str, reduce: str, u: Tensor, e: Optional[Tensor]) -> Tensor:
    """Runs one aggregation. Collective.

    :param relation: where edges and rows come from
    :param message: ``"copy_u"`` or ``"u_mul_e"``
    :param reduce: ``"sum"`` or ``"mean"``
    :param u: ``[num_src, w]`` float32, float64 or bfloat16
    :param e: ``[num_edges, h]``, where h divides w; head k scales columns ``k*w/h..(k+1)*w/h-1``
    :returns: ``[num_dst, w]``
    """
    _session.current().follow_config()
    need = 0
    if torch.is_grad_enabled():
        need |= abi.GRAD_U if u.requires_grad else 0
        need |= abi.GRAD_E if e is not None and e.requires_grad else 0
    agreed = Agreed()
    spec = abi.AggregateSpec(relation.index, message, reduce, storage.travels_as(u))
    out: Tensor = _Aggregate.apply(anchor(), u, e, relation, spec, need, agreed)
    return out if agreed.bits else out.detach()


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        u: Tensor,
        e: Optional[Tensor],
        relation: Relation,
        spec: abi.AggregateSpec,
        need: int,
        agreed: Agreed,
    ) -> Tensor:
        u = u.contiguous()
        e = None if e is None else e.contiguous()
        dtype = u.dtype if e is None else torch.promote_types(u.dtype, e.dtype)
        out = storage.empty((relation.num_dst, u.shape[1]), dtype)
        agreed.bits = memo.forward(relation, spec, need, u, e, out)
        ctx.operation = schedule.last()
        ctx.relation, ctx.spec, ctx.agreed, ctx.need = relation, spec, agreed.bits, need
        ctx.save_for_backward(u if agreed.bits & abi.GRAD_E else None, e)
        ctx.shape, ctx.dtype = u.shape, u.dtype
        ctx.name = calling_layer(f"update_all({spec.message}, {spec.reduce})")
        return out

    @staticmethod
    @differentiable_once(lambda ctx: ctx.name)
    def backward(ctx: Any, grad_out: Tensor) -> Tuple[Optional[Tensor], ...]:
        u, e = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        grad_u = storage.empty(ctx.shape, ctx.dtype) if ctx.need & abi.GRAD_U else None
        grad_e = torch.empty_like(e) if e is not None and ctx.need & abi.GRAD_E else None
        abi.aggregate_backward(ctx.relation.handle, ctx.spec, ctx.agreed, u, e, grad_out, grad_u, grad_e, ctx.operation)
        return None, grad_u, grad_e, None, None, None, None
