"""The rows of an edge index: at which nodes edges begin, and at which they end.

They stand for numbers that are not there. ``x.index_select(0, ends)`` and ``x[ends]`` give a
:class:`~sar.graph.edge_tensor.tensor.EdgeTensor`, and sums by ends run in the engine. Other functions of torch are
refused. ``ends.numbers()`` has the numbers of this worker: columns of sources (own nodes, then halo rows), or own rows
of destinations.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, ClassVar, Dict, Iterator, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.autograd.dtypes import FLOATS
from sar.autograd.expression import load
from sar.autograd.fetch import fetch
from sar.autograd.message import check_dense
from sar.graph.edge_tensor.functions import converts_nothing
from sar.graph.edge_tensor.rowwise_rules import ROWS, sizes_of
from sar.graph.edge_tensor.tensor import EdgeTensor
from sar.graph.edge_tensor.written_softmax import Reduced
from sar.graph.refused import caller

from .edges import SplitEdges
from .loops import LoopMask, unmasked
from .placeholders import SplitNumbers

NODES = {"u": "source nodes", "v": "destination nodes"}


class EdgeEnds(SplitNumbers):
    """int64 ``[num_edges]``: the sources ("u") or destinations ("v") of a worker's edges.

    :param edges: whose ends
    :param side: "u" or "v"
    :param shape: sizes before and after broadcasting; ``place`` is the dimension of edges in it
    """

    handlers: ClassVar[Dict[Any, Callable[..., Any]]] = {}
    side: str
    place: int

    @staticmethod
    def __new__(cls, edges: SplitEdges, side: str, shape: Optional[Sequence[int]] = None, place: int = 0) -> EdgeEnds:
        size = (edges.num_edges,) if shape is None else tuple(shape)
        self: EdgeEnds = Tensor._make_wrapper_subclass(cls, size, dtype=torch.int64)
        self.edges, self.side, self.place = edges, side, place
        return self

    def numbers(self) -> Tensor:
        """The numbers as an ordinary tensor. Local."""
        found = self.edges.numbers()[0 if self.side == "u" else 1]
        with torch._C.DisableTorchFunctionSubclass():
            shape = tuple(self.shape)
        return found.view(*(1,) * self.place, -1, *(1,) * (len(shape) - self.place - 1)).expand(shape)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"EdgeEnds({'sources' if self.side == 'u' else 'destinations'}, {self.numbers()})"


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
    if isinstance(x, EdgeTensor):
        raise ValueError("a tensor of edges was indexed with the ends of edges: give one with a row for each own node")
    if x.shape[dim] != edges.rows(side):
        raise ValueError(
            f"a tensor of shape {tuple(x.shape)} was given for {edges.rows(side)} own {NODES[side]} (dimension {dim}): "
            "tensors of nodes have a row for each node that this worker owns, as data.x has"
        )
    if dim == 0 and x.dtype in FLOATS:
        if isinstance(x, Reduced) and side == "v":
            picked: Any = edges.tensor(load(side, x.as_subclass(Tensor)))
            picked.rows_of = x
            return picked
        return edges.tensor(load(side, x))
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


@handles(Tensor.max, torch.max)
def _max(input: Any, *args: Any, **kwargs: Any) -> Any:
    return last_node([input.edges.rows(input.side)], *args, **kwargs) if isinstance(input, EdgeEnds) else NotImplemented


def last_node(counts: Sequence[int], *args: Any, **kwargs: Any) -> Any:
    """The number of the last own node, for functions of PyG that count nodes by the largest number in an edge index.

    :param counts: of nodes, by side
    :param args: further arguments of ``max``
    """
    return NotImplemented if args or kwargs or caller() not in COUNT_NODES else torch.tensor(max(counts) - 1)


COUNT_NODES = frozenset(["torch_geometric.utils.num_nodes.maybe_num_nodes", "torch_geometric.utils._scatter.scatter"])
COUNT_NODES |= {"torch_geometric.nn.conv.hypergraph_conv.forward"}
COUNT_NODES |= {"torch_geometric.nn.aggr.base.__call__"}  # which asks after an error, for one that says more


@handles(F.embedding)
def _embedding(input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None, *args: Any, **named: Any) -> Any:
    switches = [arg for arg in (*args, *named.values()) if isinstance(arg, bool)]  # of gradients
    plain = padding_idx is None and max_norm is None and not any(switches)
    return lift(weight, 0, input) if plain and _whole(input) else NotImplemented


@handles(Tensor.gather, torch.gather)
def _gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """Rows of nodes, where the index is a row of the edge index that was expanded to the other dimensions."""
    if isinstance(input, EdgeEnds) or not isinstance(index, EdgeEnds) or Tensor.dim(index) != input.dim():
        return NotImplemented
    dim, sizes = dim % input.dim(), list(index.shape)
    sizes[dim] = input.shape[dim]
    fits = index.place == dim and sizes == list(input.shape)
    return lift(input, dim, EdgeEnds(index.edges, index.side)) if fits else NotImplemented


def _whole(index: Any) -> bool:
    return isinstance(index, EdgeEnds) and Tensor.dim(index) == 1


# ---- what the ends of edges tell --------------------------------------------------


def _loops(input: Any, other: Any, loops: bool) -> Any:
    """Which edges are self loops: own nodes have the same numbers as sources and as destinations."""
    ends = _whole(input) and _whole(other) and input.edges is other.edges and input.side != other.side
    return LoopMask(input.edges, loops) if ends else NotImplemented


handles(Tensor.eq, Tensor.__eq__, torch.eq)(partial(_loops, loops=True))
handles(Tensor.ne, Tensor.__ne__, torch.ne)(partial(_loops, loops=False))


@handles(torch.bincount, Tensor.bincount)
def _bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Degrees of own nodes, where as many counts as own nodes are asked for."""
    if weights is not None or not _whole(input) or minlength != input.edges.rows(input.side):
        return NotImplemented
    return input.edges.relation.degrees(out=input.side == "u").clone()


def _converted(func: Any, input: Any, *args: Any, copy: bool = False, **kwargs: Any) -> Any:
    return input if converts_nothing(func, input, args, kwargs) else NotImplemented


COPIES: Dict[Any, Callable[..., Any]] = {
    **{func: partial(_converted, func) for func in (Tensor.to, Tensor.long, Tensor.contiguous, Tensor.cpu)},
    **dict.fromkeys((Tensor.clone, Tensor.detach), lambda input, **kwargs: input),
}
"""Copies, which are the tensor itself as nobody writes into it, and conversions where there is nothing to convert."""
EdgeEnds.handlers.update(COPIES)


# ---- views of a row ----------------------------------------------------------------
#
# Functions that take an index for every number want a row in another shape: ``col.view(-1, 1).expand(-1, features)``
# and the other ways to write it. One dimension is that of edges, and along the others all is the same. torch finds out
# where that dimension goes, on a tensor without data of which it is the only one with a stride.


def _viewed(func: Callable[..., Any], input: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(input, EdgeEnds) or any(isinstance(a, Tensor) for a in [*args, *kwargs.values()]):
        return NotImplemented
    shape = list(input.shape)
    shape[input.place] = ROWS
    strides = [int(n == input.place) for n in range(len(shape))]
    try:
        found = func(torch.empty_strided(shape, strides, device="meta"), *args, **kwargs)
    except (RuntimeError, IndexError, TypeError):
        return NotImplemented  # torch says what is wrong
    places = [n for n, size in enumerate(found.shape) if size == ROWS and found.stride(n) == 1]
    same = [found.stride(n) == 0 or found.shape[n] == 1 for n in range(found.dim()) if n not in places]
    if len(places) != 1 or not all(same):
        return NotImplemented
    return _at(input, found.shape, places[0])


def _at(input: EdgeEnds, shape: Sequence[int], place: int) -> EdgeEnds:
    sizes = [*shape[:place], input.edges.num_edges, *shape[place + 1 :]]
    return EdgeEnds(input.edges, input.side, sizes, place)


def _sized(func: Callable[..., Any], input: Any, *args: Any, **kwargs: Any) -> Any:
    """Functions that take the sizes of their result, in which the number of edges may be written out."""
    sizes = sizes_of(args, kwargs) if isinstance(input, EdgeEnds) else None
    if sizes is None:
        return NotImplemented
    edges = input.edges.num_edges
    if func in EXPANDS:
        place = len(sizes) - Tensor.dim(input) + input.place
        known = 0 <= place < len(sizes) and sizes[place] in (-1, edges)
    else:
        others = [n for n, size in enumerate(sizes) if size != 1] or [0]
        place, known = others[0], -1 in sizes or (len(others) == 1 and sizes[others[0]] == edges)
    if not known:
        return NotImplemented
    if -1 not in sizes or func in EXPANDS:
        sizes[place] = ROWS
    return _viewed(func, input, sizes)


EXPANDS = (Tensor.expand, torch.broadcast_to, Tensor.broadcast_to)


@handles(Tensor.expand_as)
def _as_other(input: Any, other: Any) -> Any:
    """``expand_as``: the shape of messages, or of numbers that have one for each edge."""
    if not isinstance(input, EdgeEnds):
        return NotImplemented
    input.edges.check_graph(other)
    return EdgeEnds.handlers[Tensor.expand](input, tuple(other.shape))


@handles(Tensor.repeat, Tensor.tile, torch.tile)
def _repeat(input: Any, *args: Any, **kwargs: Any) -> Any:
    times = sizes_of(args, kwargs) if isinstance(input, EdgeEnds) else None
    if times is None:
        return NotImplemented
    n = Tensor.dim(input)
    times = [1] * (n - len(times)) + times
    place = len(times) - n + input.place
    if times[place] != 1:
        return NotImplemented
    sizes = [1] * (len(times) - n) + list(input.shape)
    return _at(input, [size * t for size, t in zip(sizes, times)], place)


def _views() -> Iterator[Any]:
    names = "unsqueeze squeeze transpose swapaxes swapdims permute movedim moveaxis t"
    for name in names.split():
        yield from (getattr(Tensor, name), getattr(torch, name))
    yield from (Tensor.T.__get__, Tensor.mT.__get__)  # type: ignore[attr-defined]


EdgeEnds.handlers.update({func: partial(_viewed, func) for func in _views()})
for _func in (Tensor.view, Tensor.reshape, torch.reshape, *EXPANDS):
    EdgeEnds.handlers[_func] = partial(_sized, _func)


@handles(Tensor.__getitem__)
def _getitem(input: Any, index: Any) -> Any:
    if not isinstance(input, EdgeEnds):
        return lift(input, 0, index) if _whole(index) else NotImplemented
    mask = unmasked(index)
    if type(mask) is Tensor and mask.dtype == torch.bool:
        sources, rows = input.edges.numbers()[:, mask]
        return rows if torch.equal(sources, rows) else NotImplemented  # self loops begin and end at own nodes
    return _viewed(Tensor.__getitem__, input, index)
