"""Fetches rows of source nodes by column number, from any worker.

Columns number the source rows that a worker's edges read: local rows first, then the halo rows of each peer. A fetch
requests any number of rows from their owners, in any order. Gradients are returned to the owners.
"""

from __future__ import annotations

from math import prod
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import schedule, session as _session, storage, streams

from .double_backward import calling_layer, differentiable_once
from .dtypes import FLOATS, refusal
from .types import Agreed, Relation, anchor, check_count

GRAD_X = 1


def fetch(relation: Relation, columns: Tensor, x: Tensor) -> Tensor:
    """``out[i]`` is row ``columns[i]`` of all workers' ``x``. Collective; n may differ from worker to worker, and be 0.

    :param relation: whose columns
    :param columns: int64 ``[n]``, own rows ``0..num_src-1``, then boundary rows; a column may occur more than once
    :param x: ``[num_src, ...]`` of any dtype, the same dtype and trailing dimensions on every worker; differentiable
        where it is float32, float64 or bfloat16
    :returns: ``[n, ...]``
    :raises ValueError: number of rows, or a column that is not there
    :raises TypeError: columns that are not int64, or gradients of another dtype
    :raises sar.BudgetError: a row does not fit into a frame of the window

    Wire: a row and 4 bytes for each row of another worker, and as much again in backward. Memory: 4 bytes per row
    beside the result.
    """
    if columns.dtype != torch.int64:
        raise TypeError(f"columns is {columns.dtype}: row numbers are int64; convert it with .long()")
    if columns.dim() != 1:
        raise ValueError(f"columns has shape {tuple(columns.shape)}: one dimension is needed")
    check_count(x, relation.num_src, "source nodes", "x")
    need = GRAD_X if torch.is_grad_enabled() and x.requires_grad else 0
    if need and x.dtype not in FLOATS:
        raise TypeError(f"x requires a gradient, but {refusal('x', x.dtype)}")
    _session.current().follow_config()
    agreed = Agreed()
    flat = x.reshape(relation.num_src, prod(x.shape[1:]))
    out: Tensor = _Fetch.apply(anchor(), flat, columns.contiguous(), relation, need, agreed)
    return (out if agreed.bits else out.detach()).view(len(columns), *x.shape[1:])


class _Fetch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, x: Tensor, columns: Tensor, relation: Relation, need: int, agreed: Agreed
    ) -> Tensor:
        dtype, name = x.dtype, storage.travels_as(x) if x.is_floating_point() else ""
        x = storage.stored(x, name).contiguous()
        out = x.new_empty((len(columns), x.shape[1]))
        agreed.bits = streams.fetch_forward(relation.handle, relation.index, columns, need, x, out)
        ctx.operation = schedule.last()
        ctx.relation, ctx.need, ctx.shape, ctx.dtype = relation, need, x.shape, dtype
        ctx.name = calling_layer("the fetching of other workers' rows")
        ctx.save_for_backward(columns)
        if not out.is_floating_point():
            ctx.mark_non_differentiable(out)
        return out.to(dtype)

    @staticmethod
    @differentiable_once(lambda ctx: ctx.name)
    def backward(ctx: Any, grad_out: Tensor) -> Tuple[Optional[Tensor], ...]:
        (columns,) = ctx.saved_tensors
        dtype = storage.computed_in(ctx.dtype)
        grad_out = grad_out.to(dtype).contiguous()
        grad_x = grad_out.new_zeros(ctx.shape) if ctx.need & GRAD_X else None
        streams.fetch_backward(ctx.relation.handle, ctx.relation.index, columns, grad_out, grad_x, ctx.operation)
        return None, None if grad_x is None else grad_x.to(ctx.dtype), None, None, None, None
