"""The adjacency matrix of a graph directory, read from its files in blocks of edges."""

from __future__ import annotations

import warnings
from typing import Callable, Iterator, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from sar.data.graph_directory import Block, EdgeType, GraphDirectory

from .adjacency import mismatch

_EDGES = 1 << 20  # of a block
BLOCK_BYTES = 64 * _EDGES
"""What a block of edges takes at most, with all that is computed of it."""


class StoredAdjacency:
    """That of one edge type of a graph directory. Its one worker owns all nodes, and holds no edges.

    :param one: an edge type from a node type to itself
    :param weight: the name of a feature of its edges, with one number each; None: 1 each
    :ivar told: is called with the number of edges that were read, after each block
    :raises ValueError: two node types, or no such feature
    """

    first = 0

    def __init__(self, graph: GraphDirectory, one: EdgeType, weight: Optional[str] = None) -> None:
        self._graph, self._one = graph, one
        self.told: Callable[[int], None] = lambda edges: None
        name = ":".join(one.type)
        if one.type[0] != one.type[2]:
            raise ValueError(f"edges of type {name} lead from one node type to another: give a type that does not")
        self._weight = None if weight is None else one.features.get(weight)
        if weight is not None:
            if self._weight is None:
                known = ", ".join(one.features) or "none"
                raise ValueError(f"edges of type {name} have no feature {weight!r}; there are: {known}")
            if int(np.prod(self._weight.shape)) != one.count:
                raise ValueError(f"the feature {weight!r} has several numbers for each edge, and a weight is one")
        self.num_own = self.num_nodes = graph.node_types[one.type[2]].count
        self._symmetric = one.symmetric if weight is None else None

    def _blocks(self) -> Iterator[Tuple[Block, Optional[np.ndarray]]]:
        """Edges, and their weights in float64."""
        for block in self._graph.blocks(self._one, _EDGES):
            weight = None
            if self._weight is not None:
                given = self._graph.map(self._weight)[block.begin : block.begin + len(block.source)]
                weight = given.reshape(-1).astype(np.float64)
            yield block, weight
            self.told(len(block.source))

    def sums(self, x: Tensor) -> Tensor:
        out = torch.zeros(self.num_own, x.shape[1], dtype=x.dtype)
        for block, weight in self._blocks():
            given = torch.ones(len(block.source)) if weight is None else torch.from_numpy(weight)
            source = torch.from_numpy(block.source)
            indptr = torch.from_numpy(block.indptr).to(source.dtype)
            size = (len(indptr) - 1, self.num_own)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
                matrix = torch.sparse_csr_tensor(indptr, source, given.to(x.dtype), size, check_invariants=False)
            out[block.first : block.first + size[0]] += matrix @ x
        return out

    def degrees(self, out: bool) -> Tensor:
        if not out and self._weight is None:
            return torch.from_numpy(np.diff(self._graph.map(self._one.indptr)).astype(np.float64))
        found = torch.zeros(self.num_own, dtype=torch.float64)
        for block, weight in self._blocks():
            _add_at(found, block.source if out else block.target(), weight)
        return found

    def loops(self) -> Tensor:
        found = torch.zeros(self.num_own, dtype=torch.float64)
        for block, weight in self._blocks():
            at = block.source == block.target()
            _add_at(found, block.source[at], None if weight is None else weight[at])
        return found

    def symmetric(self) -> bool:
        if self._symmetric is None:
            found = sum(mismatch(block.source, block.target(), weight) for block, weight in self._blocks())
            self._symmetric = found % (1 << 64) == 0
        return self._symmetric

    def ids(self) -> Tensor:
        return torch.arange(self.num_own)

    def total(self, value: Tensor) -> Tensor:
        return value

    def most_rows(self) -> int:
        return self.num_own

    def agreed(self, value: Tensor) -> Tensor:
        return value

    def over_out_edges(self, x: Tensor) -> Tensor:
        least, most = torch.full_like(x, float("inf")), torch.full_like(x, float("-inf"))
        total, square, count = (torch.zeros_like(x) for _ in range(3))
        for block, _ in self._blocks():
            values, source = x[torch.from_numpy(block.target())], torch.from_numpy(block.source).long()
            least.scatter_reduce_(0, source, values, "amin")
            most.scatter_reduce_(0, source, values, "amax")
            total.index_add_(0, source, values)
            square.index_add_(0, source, values.square())
            _add_at(count, block.source, None)
        none, count = (count == 0).view(-1, 1), count.clamp(min=1)
        return torch.stack([least, most, total / count, square / count], 1).masked_fill_(none, 0)


def _add_at(sums: Tensor, places: np.ndarray, weight: Optional[np.ndarray]) -> None:
    """Adds to the sums at some places, which may occur several times."""
    given = torch.ones(len(places), dtype=sums.dtype) if weight is None else torch.from_numpy(weight)
    sums.index_add_(0, torch.from_numpy(places), given)
