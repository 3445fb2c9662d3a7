"""Readout: reductions over the nodes of each graph of a batch, where nodes are on several workers.

Every worker gets the same result. Its gradient is the sum of the gradients of all workers' losses, so compute a loss on
pooled features on one worker only, or divide it by the number of workers.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import abi, schedule, session as _session
from sar.autograd.compile import uncompiled
from sar.autograd.double_backward import differentiable_once
from sar.autograd.types import anchor
from sar.distributed.agreement import anywhere, summed

from .counts import Counts


class NodeBatch(Tensor):
    """int64 ``[own rows]``: the graph of each node of this worker, from 0. Functions of torch read it as it is.

    :ivar graphs: graphs of all workers
    :ivar nodes: of each graph, int64 ``[graphs]``; None: workers add them up where they are asked for
    """

    graphs: int
    nodes: Optional[Tensor]

    @staticmethod
    def of(batch: Tensor, graphs: int, nodes: Optional[Tensor] = None) -> NodeBatch:
        """A batch vector whose graphs are on several workers."""
        made = batch.detach().as_subclass(NodeBatch)
        made.graphs, made.nodes = graphs, nodes
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


def one_graph(own: int, nodes: Optional[int] = None) -> NodeBatch:
    """The batch vector of rows that are all of one graph.

    :param own: rows of this worker
    :param nodes: rows of all workers, where they are known
    """
    batch = torch.zeros((), dtype=torch.int64).expand(own)
    return NodeBatch.of(batch, 1, None if nodes is None else torch.tensor([nodes]))


Largest = Callable[[Tensor, NodeBatch], Tensor]
"""The maximum over the rows of each graph, ``[graphs, ...]``."""


# ---- as PyG has it -------------------------------------------------------------------


def largest_shared(value: Tensor, batch: NodeBatch) -> Tensor:
    """NaN wins; equal values share their gradient, with the 0 that a result of PyG's begins with."""
    index = batch.as_subclass(Tensor)
    given = value.detach()
    places = _column(index, value).expand_as(given)
    best = given.new_full((batch.graphs, *value.shape[1:]), _lowest(value.dtype))
    best = best.scatter_reduce(0, places, given, "amax")
    _session.all_reduce(best, "max", abi.TRAIN)
    best.masked_fill_(_column(nodes_per_graph(batch) == 0, value), 0)
    if not value.is_floating_point():
        return best
    won = given == best.index_select(0, index)
    ties = sum_over_workers(_own_sums(won, batch)) + (best == 0)
    return _of_all(_own_sums(value * won, batch) / ties, best.double()).to(value.dtype)


@uncompiled
def reduce_by_graph(
    value: Tensor, batch: NodeBatch, dim: int, reducer: str, largest: Largest = largest_shared
) -> Tensor:
    """Reduces the rows of each graph. Collective.

    :param value: own rows in dimension ``dim``
    :param reducer: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``
    :param largest: computes the last two
    :returns: graphs in dimension ``dim``; 0 for a graph without nodes
    :raises ValueError: the number of rows, or another reducer
    """
    if value.shape[dim] != len(batch):
        raise ValueError(
            f"a tensor of shape {tuple(value.shape)} was given for {len(batch)} own nodes (dimension {dim}): tensors "
            "of nodes have a row for each node that this worker owns"
        )
    if value.dtype == torch.bfloat16:
        return reduce_by_graph(value.float(), batch, dim, reducer, largest).to(value.dtype)
    if dim:
        return reduce_by_graph(value.movedim(dim, 0), batch, 0, reducer, largest).movedim(0, dim)
    if reducer == "min":
        return -largest(-value, batch)
    if reducer == "max":
        return largest(value, batch)
    if reducer not in ("sum", "mean"):
        raise ValueError(f"reducer {reducer!r} is unknown: give sum, mean, max or min")
    out = sum_over_workers(_own_sums(value, batch)).to(value.dtype)
    return out if reducer == "sum" else out / _column(nodes_per_graph(batch).clamp(min=1), out).to(out.dtype)


@uncompiled
def softmax_by_graph(value: Tensor, batch: NodeBatch, dim: int, largest: Largest = largest_shared) -> Tensor:
    """``exp(value)`` divided by its sum over the nodes of the same graph. Collective."""
    if value.dtype == torch.bfloat16:
        return softmax_by_graph(value.float(), batch, dim, largest).to(value.dtype)

    def of_node(rows: Tensor) -> Tensor:
        return rows if batch.graphs == 1 else rows.index_select(dim, batch.as_subclass(Tensor))

    most = reduce_by_graph(value.detach(), batch, dim, "max", largest)
    power = (value - of_node(most)).exp()
    return power / of_node(reduce_by_graph(power, batch, dim, "sum") + 1e-16)


@uncompiled
def nodes_per_graph(batch: NodeBatch) -> Tensor:
    """int64 ``[graphs]``: nodes of all workers. Collective where they are not known."""
    if batch.nodes is not None:
        return batch.nodes
    return summed(torch.bincount(batch.as_subclass(Tensor), minlength=batch.graphs))


def _own_sums(value: Tensor, batch: NodeBatch) -> Tensor:
    """float64 ``[graphs, ...]``: sums over own rows."""
    wide = value.double()
    if batch.graphs == 1:
        return wide.sum(0, keepdim=True)
    return wide.new_zeros(batch.graphs, *value.shape[1:]).index_add(0, batch.as_subclass(Tensor), wide)


def _lowest(dtype: torch.dtype) -> float:
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _column(rows: Tensor, like: Tensor) -> Tensor:
    """A number for each row, as it is broadcast against a tensor of rows."""
    return rows.view(-1, *(1,) * (like.dim() - 1))


# ---- as DGL has it -------------------------------------------------------------------


def graph_reduce(rows: Counts, value: Tensor, reducer: str) -> Tensor:
    """Reduces the rows of all workers to ``[1, ...]``. Collective.

    :param rows: own rows and all rows, as ``batch_num_nodes`` gives them
    :param value: ``[own rows, ...]``, float32, float64 or bfloat16
    :param reducer: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``; of equal values max and min take the first, never
        NaN, and give 0 for what is infinite
    :raises ValueError: another reducer, or the number of rows
    """
    return reduce_by_graph(value, _counted(rows, value), 0, reducer, _largest_first)


def graph_softmax(rows: Counts, value: Tensor) -> Tensor:
    """``exp(value)`` divided by its sum over the rows of all workers, ``[own rows, ...]``. Collective."""
    return softmax_by_graph(value, _counted(rows, value), 0, _largest_first)


def _counted(rows: Counts, value: Tensor) -> NodeBatch:
    own = int(rows.sum())
    if len(value) != own:
        raise ValueError(f"{len(value)} rows were given, and this worker has {own}")
    return one_graph(own, int(rows.whole.sum()))


def _largest_first(value: Tensor, batch: NodeBatch) -> Tensor:
    most = max_over_workers(value.masked_fill(value.isnan(), float("-inf")))
    return most.masked_fill(most.isinf(), 0)


# ---- rows of all workers -------------------------------------------------------------


def max_over_workers(value: Tensor) -> Tensor:
    """The maximum over the rows of all workers, ``[1, ...]``, as torch's ``max(0)`` has it: NaN wins, and of equal rows
    the first gets the gradient. Collective."""
    session = _session.current()
    # of no rows the lowest number, which autograd takes for made of them
    own = value.max(0, keepdim=True).values if len(value) else value.sum(0, keepdim=True) + _lowest(value.dtype)
    own = own.to(value.dtype)
    best = own.detach().clone()
    _session.all_reduce(best, "max", abi.TRAIN)
    # the first worker that has it, and no other
    mine = (own == best) | own.isnan()
    holder = torch.where(mine, session.rank if len(value) else session.world, session.world).double()
    _session.all_reduce(holder, "min", abi.TRAIN)
    held = own.masked_fill(holder != session.rank, 0)
    return _of_all(held.double(), best.double()).to(value.dtype)


def sum_over_workers(value: Tensor) -> Tensor:
    """Adds up a tensor of all workers, of the same shape on each. Collective."""
    return _of_all(value, summed(value.detach().clone()))


def rows_of_all(value: Tensor) -> Tensor:
    """The rows of all workers, by rank. Collective; gradients are returned to the owners and added up.

    :param value: ``[own rows, ...]``, the same dtype and trailing dimensions on every worker
    :returns: ``[rows of all workers, ...]``
    """
    (needed,) = anywhere(value.requires_grad and torch.is_grad_enabled())
    out: Tensor = _Gathered.apply(anchor(), value)
    return out if needed else out.detach()


def _of_all(own: Tensor, found: Tensor) -> Tensor:
    """What all workers have found, whose gradients, added up, are those of what each of them has. Collective."""
    operation = schedule.last()
    (needed,) = anywhere(own.requires_grad and torch.is_grad_enabled())
    out: Tensor = _OfAll.apply(anchor(), own, found, operation) if needed else found
    return out


class _OfAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, own: Tensor, found: Tensor, operation: Any) -> Tensor:
        ctx.operation = operation
        return found.clone()

    @staticmethod
    @differentiable_once("a sum or maximum over all nodes of a graph")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        total = grad.clone()
        _session.all_reduce(total, "sum", abi.TRAIN, ctx.operation)
        return None, total if ctx.needs_input_grad[1] else None, None, None


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
