"""The adjacency matrix of a graph, as whole-graph computations see it: sums over edges, and rows of own nodes."""

from __future__ import annotations

from typing import Any, Iterator, List, Optional, Protocol, Tuple

import numpy as np
import torch
from torch import Tensor

from sar._engine import abi, session as _session
from sar.autograd.aggregate import aggregate
from sar.autograd.expression import load
from sar.autograd.transpose import sum_to_sources
from sar.distributed.agreement import all_or_none, largest_of_all, summed
from sar.graph.edge_index.edges import SplitEdges
from sar.graph.edge_index.reduce import reduced
from sar.graph.edge_tensor.tensor import values
from sar.graph.manager import GraphShardManager
from sar.links.draw import drawn, mixed
from sar.links.edges import graph_of
from sar.links.originals import originals

_EDGES = 1 << 20  # of a block


class Adjacency(Protocol):
    """The matrix ``A[u, v]``: the weights of the edges from u to v, added up. Own nodes are the rows of all tensors.

    :ivar num_own: own nodes
    :ivar num_nodes: nodes of all workers
    :ivar first: own nodes are ``first .. first + num_own - 1`` of all
    """

    num_own: int
    num_nodes: int
    first: int

    def sums(self, x: Tensor) -> Tensor:
        """``A.T @ x``: sums of the rows of sources over in-edges, ``[own nodes, w]``. Collective."""

    def degrees(self, out: bool) -> Tensor:
        """Sums of the weights of out-edges or in-edges, float64 ``[own nodes]``. Collective."""

    def loops(self) -> Tensor:
        """Sums of the weights of self loops, float64 ``[own nodes]``."""

    def symmetric(self) -> bool:
        """Whether every edge has its reverse, with the same weight. Collective."""

    def ids(self) -> Tensor:
        """Original ids of own nodes, int64, by which numbers are drawn. Collective."""

    def total(self, value: Tensor) -> Tensor:
        """The sum over all workers, in place. Collective."""

    def most_rows(self) -> int:
        """The largest number of own nodes of any worker. Collective."""

    def agreed(self, value: Tensor) -> Tensor:
        """Rank 0's, in place, so that no rounding makes workers decide differently. Collective."""

    def over_out_edges(self, x: Tensor) -> Tensor:
        """Minimum, maximum, mean and mean square of ``x[v]`` over the out-edges ``(u, v)`` of each own node u; 0 where
        there are none. Collective.

        :param x: float64 ``[own nodes]``
        :returns: ``[own nodes, 4]``
        """


def uniform(adjacency: Adjacency, seed: int) -> Tensor:
    """A number from -1 to 1 for each own node, which follows from its original id: float64. Collective."""
    return drawn(1 << 53, seed, adjacency.ids()).double() / (1 << 52) - 1


def mismatch(source: np.ndarray, target: np.ndarray, weight: Optional[np.ndarray]) -> int:
    """A number below 2^64 that adds up, modulo 2^64, to 0 over all edges of a symmetric graph, and over those of others
    with a probability of 2^-64."""
    bits = np.uint64(0) if weight is None else weight.astype(np.float64).view(np.uint64)
    source, target = source.astype(np.uint64), target.astype(np.uint64)
    there = mixed(mixed(mixed(source) + target) + bits).sum(dtype=np.uint64)
    back = mixed(mixed(mixed(target) + source) + bits).sum(dtype=np.uint64)
    return (int(there) - int(back)) % (1 << 64)


class SplitAdjacency:
    """That of a graph split over workers: products run in the engine.

    :param graph: of one relation from a node type to itself
    :param weight: ``[num_edges]``; None: 1 each
    """

    def __init__(self, graph: GraphShardManager, weight: Optional[Tensor]) -> None:
        self._graph, self._relation, self._weight = graph, graph._relations[0], weight
        self._kind = self._relation.canonical[0]
        nodes = graph._state.nodes[self._kind]
        self.num_own, self.num_nodes, self.first = nodes.num_own, nodes.num_global, nodes.first

    def sums(self, x: Tensor) -> Tensor:
        e = None if self._weight is None else self._weight.to(x.dtype).view(-1, 1)
        return aggregate(self._relation, "copy_u" if e is None else "u_mul_e", "sum", x, e)

    def degrees(self, out: bool) -> Tensor:
        if self._weight is None:
            return self._relation.degrees(out=out).double()
        if out:
            return sum_to_sources(self._relation, self._weight.double().view(-1, 1), None)[:, 0]
        return self.sums(torch.ones(self.num_own, 1, dtype=torch.float64))[:, 0]

    def _blocks(self) -> Iterator[Tuple[Tensor, Tensor, Optional[Tensor]]]:
        """Columns of sources, rows of destinations and weights of own edges. Local."""
        step = max(1, _EDGES * self.num_own // max(1, self._relation.num_edges))
        for begin in range(0, self.num_own, step):
            rows = torch.arange(begin, min(begin + step, self.num_own))
            indptr, columns, edges = self._relation.in_edges(rows)
            weight = None if self._weight is None else self._weight[edges].double()
            yield columns, rows.repeat_interleave(indptr.diff()), weight

    def loops(self) -> Tensor:
        found = torch.zeros(self.num_own, dtype=torch.float64)
        for columns, rows, weight in self._blocks():
            at = columns == rows
            found += torch.bincount(rows[at], None if weight is None else weight[at], minlength=self.num_own)
        return found

    def symmetric(self) -> bool:
        nodes = self._graph.column_nodes(self._relation.canonical)
        found = 0
        for columns, rows, weight in self._blocks():
            found += mismatch(
                nodes[columns].numpy(), (rows + self.first).numpy(), None if weight is None else weight.numpy()
            )
        halves = torch.tensor([found & 0xFFFFFFFF, found >> 32 & 0xFFFFFFFF])
        low, high = self.total(halves).tolist()
        return (low + (high << 32)) % (1 << 64) == 0

    def ids(self) -> Tensor:
        state = self._graph._state
        return originals(state, self._kind).of_own(state.nodes[self._kind])

    def total(self, value: Tensor) -> Tensor:
        return summed(value)

    def most_rows(self) -> int:
        return largest_of_all(self.num_own)

    def agreed(self, value: Tensor) -> Tensor:
        _session.broadcast(value, 0, abi.TRAIN)
        return value

    def over_out_edges(self, x: Tensor) -> Tensor:
        edges, column = SplitEdges(self._graph), x.view(-1, 1)
        wanted = (("min", column), ("max", column), ("mean", column), ("mean", column.square()))
        return torch.cat([values(reduced(edges, "u", edges.tensor(load("v", of)), 0, op)) for op, of in wanted], 1)


def adjacency_of(
    name: str, edges: Any, weight: Optional[Tensor] = None, rows: Optional[Tensor] = None
) -> SplitAdjacency:
    """The adjacency matrix of what scripts name as a graph. Collective.

    :param name: of the caller, for errors
    :param edges: an edge index, a data object of PyG with one, or a graph of one relation
    :param weight: of own edges; None: 1 each
    :param rows: a tensor of own nodes that goes with it
    :raises ValueError, TypeError: on every worker, where edges lead from one node type to another, or weights or rows
        do not fit
    """

    def check() -> SplitAdjacency:
        graph = graph_of(edges)
        source, _, target = graph._relations[0].canonical
        if source != target or not graph.src_is_tgt:
            raise ValueError(f"{name}: a full graph from a node type to itself is wanted, not {source!r} to {target!r}")
        own = graph._relations[0].num_edges
        given = None if weight is None else values(weight).detach()
        if given is not None:
            sizes: List[int] = list(given.shape)
            if sizes not in ([own], [own, 1]) or not given.is_floating_point():
                raise ValueError(
                    f"{name}: weights of edges are floating-point numbers, one for each of this worker's {own} edges; "
                    f"given were {given.dtype} {sizes}"
                )
            given = given.reshape(-1)
        made = SplitAdjacency(graph, given)
        if rows is not None and (rows.dim() not in (1, 2) or len(rows) != made.num_own):
            raise ValueError(
                f"{name}: a tensor of shape {list(rows.shape)} was given for the {made.num_own} nodes of this worker"
            )
        return made

    return all_or_none(name, check)
