"""The edge index of a split graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

import torch
from torch import Tensor

from sar.graph.edge_tensor.tensor import values
from sar.graph.refused import caller, refusal

from . import scatter  # noqa: F401  register what is done with rows of an edge index
from .edges import SplitEdges
from .loops import LoopMask, unmasked
from .placeholders import SplitNumbers
from .rows import COPIES, EdgeEnds, check_size, handles, last_node, lift

if TYPE_CHECKING:
    from sar.graph.manager import GraphShardManager


class SplitEdgeIndex(SplitNumbers):
    """int64 ``[2, num_edges]``: the in-edges of a worker's own nodes, in the order of edge tensors.

    It takes the place of the ``edge_index`` of a whole graph in layers of PyG. It holds no numbers; functions of torch
    that would read them raise :class:`sar.WholeGraphError`. ``numbers()`` has those of this worker: in row 0 columns of
    sources (own nodes, then halo rows, which ``graph.column_nodes()`` names), in row 1 own rows of destinations.
    ``numel()`` is that of all workers.

    :param edges: the edges
    :param flipped: rows are exchanged, so messages go to where edges begin
    :param any_order: nobody has tensors of these edges, so that with self loops they may come in another order
    """

    per_edge = 2
    flipped: bool
    _any_order: bool

    @staticmethod
    def __new__(cls, edges: SplitEdges, flipped: bool = False, any_order: bool = False) -> SplitEdgeIndex:
        self: SplitEdgeIndex = Tensor._make_wrapper_subclass(cls, (2, edges.num_edges), dtype=torch.int64)
        self.edges, self.flipped, self._any_order = edges, flipped, any_order
        return self

    @property
    def graph(self) -> GraphShardManager:
        """The graph manager."""
        return self.edges.graph

    def of(self, edges: SplitEdges) -> SplitEdgeIndex:
        """An edge index of other edges, in the same direction."""
        return self if edges is self.edges else SplitEdgeIndex(edges, self.flipped, self._any_order)

    def with_loops(self) -> SplitEdgeIndex:
        """These edges, and behind them one from each node to itself. Collective the first time."""
        return self.of(self.edges.with_loops(self._any_order))

    def in_any_order(self) -> SplitEdgeIndex:
        """The same edges, for a layer that has no tensors of them."""
        return SplitEdgeIndex(self.edges, self.flipped, True)

    def end(self, row: int) -> EdgeEnds:
        """A row."""
        return EdgeEnds(self.edges, "uv"[(row % 2) ^ self.flipped])

    def numbers(self) -> Tensor:
        """The numbers as an ordinary tensor. Local."""
        found = self.edges.numbers()
        return found.flip(0) if self.flipped else found

    def __iter__(self) -> Iterator[EdgeEnds]:
        return iter((self.end(0), self.end(1)))  # torch's own does not ask for overrides

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"SplitEdgeIndex({self.numbers()})"


def edge_index(graph: GraphShardManager) -> SplitEdgeIndex:
    """The edge index of a graph manager of one relation.

    :raises ValueError: a graph of several relations
    """
    if len(graph._relations) != 1:
        raise ValueError(f"this graph has several relations: give graph[relation], of {graph.canonical_etypes}")
    return SplitEdgeIndex(SplitEdges(graph))


# ---- functions of torch --------------------------------------------------------


def _getitem(input: Any, index: Any) -> Any:
    if not isinstance(input, SplitNumbers) and isinstance(index, SplitEdgeIndex):
        return torch.stack([values(lift(input, 0, end)) for end in index])
    if not isinstance(input, SplitEdgeIndex):
        return NotImplemented
    if isinstance(index, int) and -2 <= index < 2:
        return input.end(index)
    if isinstance(index, tuple) and len(index) == 2 and index[0] == slice(None) and isinstance(index[1], Tensor):
        return _some(input, index[1])
    if isinstance(index, (list, tuple)) and list(index) == [1, 0]:
        return _flip(input, 0)
    return NotImplemented


def _some(input: SplitEdgeIndex, chosen: Tensor) -> Any:
    """Some edges as a graph of their own. Collective."""
    edges = input.edges
    if isinstance(chosen, LoopMask) and chosen.edges is edges and not chosen.loops:
        return input.of(edges.without_loops())
    chosen = unmasked(chosen)
    if chosen.dtype != torch.bool:
        mask = torch.zeros(edges.num_edges, dtype=torch.bool)
        mask[chosen] = True
        if int(mask.sum()) != len(chosen) or bool((chosen.diff() < 0).any()):
            raise refusal(
                "picking edges in another order",
                "edges are picked by a mask, or by positions that ascend: their order is that of edge tensors",
            )
        chosen = mask
    return input.of(edges.some(chosen))


def _select(input: Any, dim: int, index: int) -> Any:
    return input.end(index) if isinstance(input, SplitEdgeIndex) and dim in (0, -2) else NotImplemented


def _unbind(input: Any, dim: int = 0) -> Any:
    return (input.end(0), input.end(1)) if dim in (0, -2) else NotImplemented


def _flip(input: Any, *dims: Any) -> Any:
    given = dims[0] if len(dims) == 1 else dims
    if given in (0, -2, (0,), [0], (-2,), [-2]):
        return SplitEdgeIndex(input.edges, not input.flipped)
    return NotImplemented


@handles(torch.stack)
def _stack(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    """Both rows of one edge index, put together again."""
    given = list(tensors)
    if len(given) != 2 or dim not in (0, -2) or not all(isinstance(t, EdgeEnds) for t in given):
        return NotImplemented
    first, second = given
    if first.edges is not second.edges or first.side == second.side:
        return NotImplemented
    return SplitEdgeIndex(first.edges, first.side == "v")


def _cat(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    """An edge index, and behind it a self loop for each own node in order. Collective."""
    given = list(tensors)
    if len(given) != 2 or dim not in (1, -1) or not isinstance(given[0], SplitEdgeIndex):
        return NotImplemented
    loops, nodes = given[1], torch.arange(given[0].edges.rows("v"))
    if caller() == "torch_geometric.utils.loop.add_self_loops":
        check_size(given[0].end(1), loops.shape[1])
    if isinstance(loops, SplitEdgeIndex) or not torch.equal(loops, torch.stack([nodes, nodes])):
        raise refusal(
            "torch.cat of an edge index",
            "edges are added before the graph is partitioned; only a self loop for each own node can be added here "
            "(torch_geometric.utils.add_self_loops)",
        )
    return given[0].with_loops()


def _new(function: Any) -> Any:
    """``edge_index.new_ones(n)`` and its like: an ordinary tensor."""
    return lambda input, *args, **kwargs: function(torch.empty(0, dtype=input.dtype), *args, **kwargs)


def _max(input: Any, *args: Any, **kwargs: Any) -> Any:
    return last_node([input.edges.rows(side) for side in "uv"], *args, **kwargs)


SplitEdgeIndex.handlers = {
    Tensor.__getitem__: _getitem,
    Tensor.select: _select,
    torch.select: _select,
    Tensor.unbind: _unbind,
    torch.unbind: _unbind,
    Tensor.flip: _flip,
    torch.flip: _flip,
    torch.cat: _cat,
    **dict.fromkeys([Tensor.max, torch.max], _max),
    **{make: _new(make) for make in (Tensor.new_ones, Tensor.new_zeros, Tensor.new_empty, Tensor.new_full)},
    **COPIES,
}
"""Functions of torch with an edge index among their arguments."""
