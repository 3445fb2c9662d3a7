"""The rows of an edge index: at which nodes edges begin, and at which they end.

They stand for numbers that are not there. ``x.index_select(0, ends)`` and ``x[ends]`` give a
:class:`~sar.graph.edge_tensor.tensor.EdgeTensor`, and sums by ends run in the engine. Other functions of torch are
refused. ``ends.numbers()`` has the numbers of this worker: columns of sources (own nodes, then halo rows), or own rows
of destinations.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.autograd.expression import load
from sar.autograd.fetch import fetch
from sar.autograd.message import FLOATS, check_dense
from sar.graph.edge_tensor.functions import converts_nothing
from sar.graph.edge_tensor.tensor import EdgeTensor
from sar.graph.edge_tensor.written_softmax import Reduced
from sar.graph.refused import caller

from .edges import SplitEdges
from .loops import LoopMask
from .placeholders import SplitNumbers

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
    def __new__(cls, edges: SplitEdges, side: str, shape: Optional[Sequence[int]] = None, place: int = 0) -> EdgeEnds:
        size = (edges.num_edges,) if shape is None else tuple(shape)
        self: EdgeEnds = Tensor._make_wrapper_subclass(cls, size, dtype=torch.int64)
        self._edges, self._side, self._place = edges, side, place
        return self

    def __init__(self, edges: SplitEdges, side: str, shape: Optional[Sequence[int]] = None, place: int = 0) -> None:
        pass

    @property
    def place(self) -> int:
        """The dimension of edges."""
        return self._place

    @property
    def side(self) -> str:
        """ "u" for sources, "v" for destinations."""
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
COUNT_NODES |= {"torch_geometric.nn.aggr.base.__call__"}  # which asks after an error, for one that says more


@handles(Tensor.__getitem__)
def _getitem(input: Any, index: Any) -> Any:
    return lift(input, 0, index) if not isinstance(input, EdgeEnds) and _whole(index) else NotImplemented


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
    fits = index._place == dim and sizes == list(input.shape)
    return lift(input, dim, EdgeEnds(index.edges, index.side)) if fits else NotImplemented


def _whole(index: Any) -> bool:
    return isinstance(index, EdgeEnds) and Tensor.dim(index) == 1


# ---- what the ends of edges tell --------------------------------------------------


def _loops(loops: bool) -> Callable[..., Any]:
    def handler(input: Any, other: Any) -> Any:
        """Which edges are self loops: own nodes have the same numbers as sources and as destinations."""
        ends = _whole(input) and _whole(other) and input.edges is other.edges and input.side != other.side
        return LoopMask(input.edges, loops) if ends else NotImplemented

    return handler


handles(Tensor.eq, Tensor.__eq__, torch.eq)(_loops(True))
handles(Tensor.ne, Tensor.__ne__, torch.ne)(_loops(False))


@handles(torch.bincount, Tensor.bincount)
def _bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Degrees of own nodes, where as many counts as own nodes are asked for."""
    if weights is not None or not _whole(input) or minlength != input.edges.rows(input.side):
        return NotImplemented
    return input.edges.relation.degrees(out=input.side == "u").clone()


@handles(Tensor.to, Tensor.long, Tensor.contiguous, Tensor.cpu, Tensor.clone, Tensor.detach)
def same(input: Any, *args: Any, **kwargs: Any) -> Any:
    """A conversion, where there is nothing to convert."""
    return input if converts_nothing(torch.int64, args, {**kwargs, "copy": False}) else NotImplemented
