"""Reductions over the nodes of each graph of a batch, where nodes are on several workers.

All workers get the same result. As in :mod:`sar.graph.readout`, its gradient is the sum over all workers' losses.
"""

from __future__ import annotations

from typing import Any, Tuple

import torch
from torch import Tensor

from sar._engine import abi, session as _session
from sar.autograd.compile import uncompiled
from sar.autograd.double_backward import differentiable_once

from .readout import sum_over_workers


class NodeBatch(Tensor):
    """int64 ``[own rows]``: the graph of each node of this worker, from 0. Functions of torch read it as it is.

    :ivar graphs: graphs of all workers
    """

    graphs: int

    @staticmethod
    def of(batch: Tensor, graphs: int) -> NodeBatch:
        """A batch vector whose graphs are on several workers."""
        made = batch.detach().as_subclass(NodeBatch)
        made.graphs = graphs
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.max and len(args) == 1 and not kwargs:
                return torch.tensor(args[0].graphs - 1)  # layers count graphs with it
            if func is Tensor.scatter_add_ and isinstance(args[2], NodeBatch) and args[1] == 0:
                return args[0].add_(reduce_by_graph(args[3], args[2], 0, "sum"))
            found = func(*args, **kwargs or {})
            if func is Tensor.sort and isinstance(args[0], NodeBatch):
                return NodeBatch.of(found[0], args[0].graphs), found[1]
            return found.as_subclass(Tensor) if isinstance(found, NodeBatch) else found


@uncompiled
def reduce_by_graph(value: Tensor, batch: NodeBatch, dim: int, reducer: str) -> Tensor:
    """Reduces the rows of each graph. Collective.

    :param value: own rows in dimension ``dim``
    :param reducer: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``; NaN wins the last two, and equal values share
        their gradient, with the 0 that a result of PyG's begins with
    :returns: graphs in dimension ``dim``; 0 for a graph without nodes
    :raises ValueError: the number of rows, or another reducer
    """
    if value.shape[dim] != len(batch):
        raise ValueError(
            f"a tensor of shape {tuple(value.shape)} was given for {len(batch)} own nodes (dimension {dim}): tensors "
            "of nodes have a row for each node that this worker owns"
        )
    if value.dtype == torch.bfloat16:
        return reduce_by_graph(value.float(), batch, dim, reducer).to(value.dtype)
    if dim:
        return reduce_by_graph(value.movedim(dim, 0), batch, 0, reducer).movedim(0, dim)
    if reducer == "min":
        return -reduce_by_graph(-value, batch, 0, "max")
    if reducer == "max":
        return _largest(value, batch)
    if reducer not in ("sum", "mean"):
        raise ValueError(f"reducer {reducer!r} is unknown: give sum, mean, max or min")
    out = _sums(value, batch)
    if reducer == "mean":
        out = out / nodes_per_graph(batch).clamp(min=1).to(out.dtype).view(-1, *(1,) * (out.dim() - 1))
    return out


@uncompiled
def softmax_by_graph(value: Tensor, batch: NodeBatch, dim: int) -> Tensor:
    """``exp(value)`` divided by its sum over the nodes of the same graph. Collective."""
    if value.dtype == torch.bfloat16:
        return softmax_by_graph(value.float(), batch, dim).to(value.dtype)
    index = batch.as_subclass(Tensor)
    with torch.no_grad():
        most = reduce_by_graph(value.detach(), batch, dim, "max")
    power = (value - most.index_select(dim, index)).exp()
    total = reduce_by_graph(power, batch, dim, "sum") + 1e-16
    return power / total.index_select(dim, index)


@uncompiled
def nodes_per_graph(batch: NodeBatch) -> Tensor:
    """int64 ``[graphs]``: nodes of all workers. Collective."""
    count = torch.bincount(batch.as_subclass(Tensor), minlength=batch.graphs)
    _session.all_reduce(count, "sum", abi.TRAIN)
    return count


def _sums(value: Tensor, batch: NodeBatch) -> Tensor:
    wide = value.double()
    if batch.graphs == 1:
        own = wide.sum(0, keepdim=True)
    else:
        own = wide.new_zeros(batch.graphs, *value.shape[1:]).index_add(0, batch.as_subclass(Tensor), wide)
    return sum_over_workers(own).to(value.dtype)


def _largest(value: Tensor, batch: NodeBatch) -> Tensor:
    index = batch.as_subclass(Tensor)
    given = value.detach()
    places = index.view(-1, *(1,) * (value.dim() - 1)).expand_as(given)
    lowest = float("-inf") if value.is_floating_point() else torch.iinfo(value.dtype).min
    best = given.new_full((batch.graphs, *value.shape[1:]), lowest)
    best = best.scatter_reduce(0, places, given, "amax")
    _session.all_reduce(best, "max", abi.TRAIN)
    best.masked_fill_((nodes_per_graph(batch) == 0).view(-1, *(1,) * (value.dim() - 1)), 0)
    if not value.is_floating_point():
        return best
    won = given == best.index_select(0, index)
    ties = _sums(won.to(value.dtype), batch) + (best == 0)
    out: Tensor = _GradientOf.apply(_sums(value * won, batch) / ties, best)  # NaN, infinities and rounding are of best
    return out


class _GradientOf(torch.autograd.Function):
    """A value, with the gradient of another one."""

    @staticmethod
    def forward(ctx: Any, differentiated: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    @differentiable_once("a maximum over all nodes")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, None]:
        return grad, None
