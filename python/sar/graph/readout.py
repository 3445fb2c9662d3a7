"""Readout: sum, mean, max and softmax over the nodes of all workers, for pooling layers.

Every worker gets the same result. Its gradient is the sum of the gradients of all workers' losses, so compute a loss on
pooled features on one worker only, or divide it by the number of workers.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import abi, schedule, session as _session
from sar.autograd.double_backward import differentiable_once
from sar.autograd.types import anchor
from sar.distributed.agreement import anywhere

from .counts import Counts


def graph_reduce(rows: Counts, value: Tensor, reducer: str) -> Tensor:
    """Reduces the rows of all workers to ``[1, ...]``. Collective.

    :param rows: own rows and all rows, as ``batch_num_nodes`` gives them
    :param value: ``[own rows, ...]``, float32, float64 or bfloat16
    :param reducer: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``; of equal values max and min take the first, never
        NaN, and give 0 for what is infinite, as DGL does
    :raises ValueError: another reducer, or the number of rows
    """
    if len(value) != int(rows.sum()):
        raise ValueError(f"{len(value)} rows were given, and this worker has {int(rows.sum())}")
    if value.dtype == torch.bfloat16:
        return graph_reduce(rows, value.float(), reducer).to(value.dtype)
    if reducer == "min":
        return -graph_reduce(rows, -value, "max")
    if reducer not in ("sum", "mean", "max"):
        raise ValueError(f"reducer {reducer!r} is unknown: give sum, mean, max or min")
    if reducer == "max":
        most = max_over_workers(value.masked_fill(value.isnan(), float("-inf")))
        return most.masked_fill(most.isinf(), 0)
    out = sum_over_workers(value.double().sum(0, keepdim=True)).to(value.dtype)
    return out / rows.whole.clamp(min=1).to(out.dtype) if reducer == "mean" else out


def graph_softmax(rows: Counts, value: Tensor) -> Tensor:
    """``exp(value)`` divided by its sum over the rows of all workers, ``[own rows, ...]``. Collective."""
    if value.dtype == torch.bfloat16:
        return graph_softmax(rows, value.float()).to(value.dtype)
    with torch.no_grad():
        most = graph_reduce(rows, value, "max")
    power = (value - most).exp()
    return power / graph_reduce(rows, power, "sum")


def max_over_workers(value: Tensor) -> Tensor:
    """The maximum over the rows of all workers, ``[1, ...]``, as torch's ``max(0)`` has it: NaN wins, and of equal rows
    the first gets the gradient. Collective."""
    return _shared(_Most, value)


def sum_over_workers(value: Tensor) -> Tensor:
    """Adds up a tensor of all workers, of the same shape on each. Collective."""
    return _shared(_Sum, value)


def rows_of_all(value: Tensor) -> Tensor:
    """The rows of all workers, by rank. Collective; gradients are returned to the owners and added up.

    :param value: ``[own rows, ...]``, the same dtype and trailing dimensions on every worker
    :returns: ``[rows of all workers, ...]``
    """
    return _shared(_Gathered, value)


def _shared(function: Any, value: Tensor) -> Tensor:
    (needed,) = anywhere(value.requires_grad and torch.is_grad_enabled())
    out: Tensor = function.apply(anchor(), value)
    return out if needed else out.detach()


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, value: Tensor) -> Tensor:
        total = value.clone()
        _session.all_reduce(total, "sum", abi.TRAIN)
        ctx.operation = schedule.last()
        return total

    @staticmethod
    @differentiable_once("a sum or maximum over all nodes of a graph")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        total = grad.clone()
        _session.all_reduce(total, "sum", abi.TRAIN, ctx.operation)
        return None, total if ctx.needs_input_grad[1] else None


class _Most(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, value: Tensor) -> Tensor:
        session = _session.current()
        own = value.new_full((1, *value.shape[1:]), float("-inf"))
        where = torch.zeros_like(own, dtype=torch.int64)
        if len(value):
            own, where = value.max(0, keepdim=True)
        best = own.clone()
        _session.all_reduce(best, "max", abi.TRAIN)
        # the first worker that has it, and no other
        mine = (own == best) | own.isnan()
        holder = torch.where(mine, session.rank if len(value) else session.world, session.world).double()
        _session.all_reduce(holder, "min", abi.TRAIN)
        ctx.operation = schedule.last()
        ctx.save_for_backward(where, holder == session.rank)
        ctx.shape = value.shape
        return best

    @staticmethod
    @differentiable_once("a sum or maximum over all nodes of a graph")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        where, mine = ctx.saved_tensors
        total = grad.to(torch.float64, copy=True)
        _session.all_reduce(total, "sum", abi.TRAIN, ctx.operation)
        total = total.to(grad.dtype)
        out = grad.new_zeros(ctx.shape)
        if len(out):
            out.scatter_(0, where, torch.where(mine, total, torch.zeros_like(total)))
        return None, out if ctx.needs_input_grad[1] else None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, value: Tensor) -> Tensor:
        world = _session.current().world
        sizes = [torch.empty(1, dtype=torch.int64) for _ in range(world)]
        _session.all_to_all(sizes, [torch.tensor([len(value)])] * world, abi.TRAIN)
        ctx.rows, ctx.shape = [int(n) for n in sizes], value.shape
        found = [value.new_empty((n, *value.shape[1:])) for n in ctx.rows]
        _session.all_to_all(found, [value] * world, abi.TRAIN)
        ctx.operation = schedule.last()
        return torch.cat(found)

    @staticmethod
    @differentiable_once("rows of all workers")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        parts = [grad.new_empty(ctx.shape) for _ in ctx.rows]
        _session.all_to_all(parts, grad.split(ctx.rows), abi.TRAIN, ctx.operation)
        return None, torch.stack(parts).sum(0) if ctx.needs_input_grad[1] else None
