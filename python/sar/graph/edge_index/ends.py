"""The rows of an edge index: at which nodes edges begin, and at which they end.

They stand for numbers that are not there. ``x.index_select(0, ends)`` and ``x[ends]`` give a
:class:`~sar.graph.edge_index.lifted.LiftedTensor`, and sums by ends run in the engine. Anything else reads the numbers,
which is local: columns of sources (own nodes, then halo rows) and own rows of destinations.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, Optional, Sequence

import torch
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.autograd.expression import load
from sar.autograd.fetch import fetch
from sar.autograd.message import FLOATS, check_dense

from .edges import SplitEdges
from .lifted import LiftedTensor
from .loops import LoopMask
from .numbers import SplitNumbers
from .reduce import check_graph, reduced
from .spelled import Reduced, remember

__all__ = ["EdgeEnds", "check_size", "lift"]

NODES = {"u": "source nodes", "v": "destination nodes"}


class EdgeEnds(SplitNumbers):
    """int64 ``[num_edges]``: the sources ("u") or destinations ("v") of a worker's edges.

    :param edges: whose ends
    :param side: "u" or "v"
    :param shape: sizes before and after broadcasting; ``place`` is the dimension of edges in it
    """

    handlers: ClassVar[Dict[Any, Callable[..., Any]]] = {}
    _side: str
    _place: int

    @staticmethod
    def __new__(
        cls, edges: SplitEdges, side: str, shape: Optional[Sequence[int]] = None, place: int = 0
    ) -> EdgeEnds:
        size = (edges.num_edges,) if shape is None else tuple(shape)
        self: EdgeEnds = Tensor._make_wrapper_subclass(cls, size, dtype=torch.int64)
        self._edges, self._side, self._place = edges, side, place
        return self

    def __init__(
        self, edges: SplitEdges, side: str, shape: Optional[Sequence[int]] = None, place: int = 0
    ) -> None:
        pass

    @property
    def side(self) -> str:
        """"u" for sources, "v" for destinations."""
        return self._side

    def numbers(self) -> Tensor:
        """The numbers as an ordinary tensor. Local."""
        found = self._edges.numbers()[0 if self._side == "u" else 1]
        with torch._C.DisableTorchFunctionSubclass():
            shape = tuple(self.shape)
        return found.view(*(1,) * self._place, -1, *(1,) * (len(shape) - self._place - 1)).expand(shape)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"EdgeEnds({'sources' if self._side == 'u' else 'destinations'}, {self.numbers()})"


def handles(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a handler of functions with ends among their arguments."""

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        EdgeEnds.handlers.update(dict.fromkeys(functions, handler))
        return handler

    return decorate


@uncompiled
def lift(x: Tensor, dim: int, ends: EdgeEnds) -> Tensor:
    """Rows of nodes at the ends of each edge. Lazy for floating-point numbers; others are fetched, collectively.

    :param x: rows of own nodes in dimension ``dim``
    :returns: edges in that dimension
    :raises ValueError: another number of rows than own nodes
    """
    edges, side = ends.edges, ends.side
    if not isinstance(dim, int) or not -x.dim() <= dim < x.dim():
        raise IndexError(f"dimension {dim} of a tensor with {x.dim()} dimensions does not exist")
    dim = dim % x.dim()
    check_dense(x, "x")
    if isinstance(x, LiftedTensor):
        raise ValueError("a tensor of edges was indexed with the ends of edges: give one with a row for each own node")
    if x.shape[dim] != edges.rows(side):
        raise ValueError(
            f"a tensor of shape {tuple(x.shape)} was given for {edges.rows(side)} own {NODES[side]} (dimension {dim}): "
            "tensors of nodes have a row for each node that this worker owns, as data.x has"
        )
    if dim == 0 and x.dtype in FLOATS:
        if isinstance(x, Reduced) and side == "v":
            picked: Any = LiftedTensor(edges, load(side, x.as_subclass(Tensor)))
            picked.rows_of = x
            return picked  # type: ignore[no-any-return]
        return LiftedTensor(edges, load(side, x))
    moved = x.movedim(dim, 0)
    if side == "v":
        return moved.index_select(0, ends.numbers()).movedim(0, dim)
    return fetch(edges.relation, ends.numbers(), moved).movedim(0, dim)


def check_size(ends: EdgeEnds, size: Optional[int]) -> None:
    """Checks how many nodes a caller takes there to be, if it says so.

    :raises ValueError: not as many as this worker owns
    """
    own = ends.edges.rows(ends.side)
    if size is not None and size != own:
        raise ValueError(
            f"a size of {size} nodes was given, and this worker owns {own}: tensors of nodes have a row for each node "
            "that this worker owns, as data.x has"
        )


# ---- picking rows of nodes ---------------------------------------------------


@handles(Tensor.index_select, torch.index_select)
def _index_select(input: Any, dim: int, index: Any) -> Any:
    if isinstance(input, EdgeEnds) or not _whole(index):
        return NotImplemented
    return lift(input, dim, index)


@handles(Tensor.__getitem__)
def _getitem(input: Any, index: Any) -> Any:
    return lift(input, 0, index) if not isinstance(input, EdgeEnds) and _whole(index) else NotImplemented


def _whole(index: Any) -> bool:
    return isinstance(index, EdgeEnds) and Tensor.dim(index) == 1


# ---- sums by ends --------------------------------------------------------------


@handles(Tensor.scatter_add_)
def _scatter_add_in_place(input: Any, dim: int, index: Any, src: Any) -> Any:
    made = _reduced(input, index, src, dim)
    return made if made is NotImplemented else _remembered(input.add_(made), index, src, "sum")


@handles(Tensor.scatter_add, torch.scatter_add)
def _scatter_add(input: Any, dim: int, index: Any, src: Any) -> Any:
    made = _reduced(input, index, src, dim)
    return made if made is NotImplemented else input + made


@handles(Tensor.index_add_)
def _index_add_in_place(input: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    return NotImplemented if alpha != 1 else _scatter_add_in_place(input, dim, index, source)


@handles(Tensor.index_add, torch.index_add)
def _index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    return NotImplemented if alpha != 1 else _scatter_add(input, dim, index, source)


def _reduced(input: Any, index: Any, src: Any, dim: int, op: str = "sum") -> Any:
    if not isinstance(index, EdgeEnds) or not isinstance(src, Tensor):
        return NotImplemented
    dim = dim % src.dim()
    check_size(index, input.shape[dim] if input.dim() == src.dim() else None)
    shape = list(src.shape)
    shape[dim] = index.edges.rows(index.side)
    if list(input.shape) != shape or (Tensor.dim(index) > 1 and index._place != dim):
        return NotImplemented
    return reduced(index.edges, index.side, src, dim, op)


@handles(Tensor.scatter_reduce_)
def _scatter_reduce_in_place(
    input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    made = _scatter_reduce(input, dim, index, src, reduce, include_self=include_self)
    if made is NotImplemented:
        return NotImplemented
    made = input.copy_(made)
    return _remembered(made, index, src, "max") if reduce == "amax" and not include_self else made


def _remembered(made: Tensor, index: EdgeEnds, src: Any, op: str) -> Tensor:
    return remember(made, op, src) if index.side == "v" and index._place == 0 else made


@handles(Tensor.scatter_reduce, torch.scatter_reduce)
def _scatter_reduce(input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    if reduce not in ("sum", "mean", "amax", "amin") or (include_self and reduce != "sum"):
        return NotImplemented
    made = _reduced(input, index, src, dim, reduce[-3:] if reduce[0] == "a" else reduce)
    if made is NotImplemented:
        return NotImplemented
    if include_self:
        return input + made
    none = index.edges.relation.degrees(out=index.side == "u") == 0
    shape = [1] * made.dim()
    shape[dim] = -1
    return torch.where(none.view(shape), input, made) if bool(none.any()) else made


# ---- what functions of PyG ask about nodes and self loops -------------------------


@handles(Tensor.max, torch.max, Tensor.amax, torch.amax)
def _max(input: Any, *args: Any, **kwargs: Any) -> Any:
    """The number of the last node, whether or not an edge ends at it: layers count nodes with it."""
    if args or kwargs or not isinstance(input, EdgeEnds):
        return NotImplemented
    return torch.tensor(input.edges.rows(input.side) - 1)


@handles(Tensor.eq, Tensor.__eq__, torch.eq)
def _equal(input: Any, other: Any) -> Any:
    return _loops(input, other, True)


@handles(Tensor.ne, Tensor.__ne__, torch.ne)
def _unequal(input: Any, other: Any) -> Any:
    return _loops(input, other, False)


def _loops(input: Any, other: Any, loops: bool) -> Any:
    ends = _whole(input) and _whole(other) and input.edges is other.edges and input.side != other.side
    return LoopMask(input.edges, loops) if ends else NotImplemented


# ---- shapes -------------------------------------------------------------------


@handles(Tensor.view, Tensor.reshape, torch.reshape)
def _view(input: Any, *shape: Any) -> Any:
    if not isinstance(input, EdgeEnds):
        return NotImplemented
    wanted = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)
    edges = input.edges.num_edges
    places = [n for n, size in enumerate(wanted) if size == -1]
    if not all(isinstance(size, int) for size in wanted) or len(places) != 1 or Tensor.dim(input) != 1:
        return NotImplemented
    if any(size != 1 for n, size in enumerate(wanted) if n != places[0]):
        return NotImplemented
    wanted[places[0]] = edges
    return EdgeEnds(input.edges, input.side, wanted, places[0])


@handles(Tensor.unsqueeze, torch.unsqueeze)
def _unsqueeze(input: Any, dim: int) -> Any:
    if Tensor.dim(input) != 1 or dim not in (-2, -1, 0, 1):
        return NotImplemented
    return _view(input, *((1, -1) if dim in (-2, 0) else (-1, 1)))


@handles(Tensor.expand_as)
def _expand_as(input: Any, other: Any) -> Any:
    if not isinstance(input, EdgeEnds):
        return NotImplemented
    check_graph(input.edges, other)
    if other.shape[input._place] != input.edges.num_edges:
        return NotImplemented
    return EdgeEnds(input.edges, input.side, other.shape, input._place)


@handles(Tensor.to, Tensor.long, Tensor.contiguous, Tensor.cpu, Tensor.clone, Tensor.detach)
def same(input: Any, *args: Any, **kwargs: Any) -> Any:
    """A conversion, where there is nothing to convert."""
    for value in [*args, *kwargs.values()]:
        if value is None or value is torch.int64 or isinstance(value, (bool, torch.memory_format)):
            continue
        if isinstance(value, (str, torch.device)) and torch.device(value).type == "cpu":
            continue
        return NotImplemented
    return input
