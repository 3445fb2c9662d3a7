"""Blocks of edges, with the rows of their sources: as these arrive, or fetched for all messages of some nodes."""

from __future__ import annotations

from typing import Callable, List, Optional, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from sar._engine import schedule, streams
from sar._engine.storage import computed_in
from sar.autograd.fetch import fetch
from sar.autograd.stream import Block, stream
from sar.config import Config
from sar.graph.relation import Relation

LEAST_EDGES = 64
"""Blocks are not made smaller than this."""

Visit = Callable[[Block], None]


class Blocks(Protocol):
    """The blocks of an operation: each of the worker's edges once, in the same order each time. Collective."""

    def forward(self, columns: List[Tensor], visit: Visit) -> None:
        """:param columns: those of sources of which rows are read"""

    def backward(
        self, columns: List[Tensor], sums: List[Optional[Tensor]], returns: List[bool], visit: Visit, again: bool
    ) -> None:
        """
        :param sums: what gradients of own rows are added to
        :param returns: of which columns gradients return to other workers
        :param again: rows are needed again
        """


class Streamed:
    """Blocks of bounded bytes, as rows of other workers arrive.

    :param edge_bytes: what a run takes for each edge
    """

    def __init__(self, relation: Relation, edge_bytes: int) -> None:
        self.relation = relation
        self.max_edges = max(LEAST_EDGES, int(Config.block_bytes) // edge_bytes)

    def forward(self, columns: List[Tensor], visit: Visit) -> None:
        stream(self.relation, columns, visit, self.max_edges)
        self.operation = schedule.last()

    def backward(
        self, columns: List[Tensor], sums: List[Optional[Tensor]], returns: List[bool], visit: Visit, again: bool
    ) -> None:
        own = [total if goes else None for total, goes in zip(sums, returns)]
        stream(self.relation, columns, visit, self.max_edges, own, return_grads=returns, of=self.operation)


def of_equal_degree(degrees: Tensor, edge_bytes: int) -> List[Tensor]:
    """Destination rows that have in-edges, by degree ascending, in batches of bounded bytes or of one node.

    :param degrees: int64 ``[num_dst]``
    :param edge_bytes: what a message takes
    """
    edges = max(1, int(Config.block_bytes) // edge_bytes)
    order = torch.argsort(degrees, stable=True)
    kinds, counts = torch.unique_consecutive(degrees[order], return_counts=True)
    found: List[Tensor] = []
    for degree, rows in zip(kinds.tolist(), order.split(counts.tolist())):
        if degree:
            found += rows.split(max(1, edges // degree))
    return found


class OfNodes:
    """All messages of some nodes at once, whichever workers own their sources: these rows are fetched, each once.

    All workers run the same number of blocks; a worker with fewer takes part in the others' fetches.

    :param nodes: destination rows of each block
    :param count: how many blocks there are on the worker that has most
    :ivar error: what the function raised. The worker has gone on serving the others
    """

    def __init__(self, relation: Relation, nodes: Sequence[Tensor], count: int) -> None:
        self.relation, self.nodes, self.count = relation, nodes, count
        self.error: Optional[Exception] = None

    def forward(self, columns: List[Tensor], visit: Visit) -> None:
        for number in range(self.count):
            sources, block = self._block(number, bool(columns))
            fetched = [fetch(self.relation, sources, column) for column in columns]
            if block.size[1] and self.error is None:
                try:
                    visit(block._replace(rows=fetched))
                except Exception as error:
                    self.error = error
        self.operation = schedule.last()

    def backward(
        self, columns: List[Tensor], sums: List[Optional[Tensor]], returns: List[bool], visit: Visit, again: bool
    ) -> None:
        relation = self.relation
        for number in range(self.count):
            sources, block = self._block(number, bool(columns))
            fetched = [fetch(relation, sources, column.detach()) for column in columns] if again else []
            shapes = [(len(sources), *column.shape[1:]) for column in columns]
            dtypes = [computed_in(column.dtype) for column in columns]
            grads = [torch.zeros(s, dtype=d) if goes else None for s, d, goes in zip(shapes, dtypes, returns)]
            if block.size[1]:
                visit(block._replace(rows=fetched, grad_rows=grads))
            for grad, total in zip(grads, sums):
                if grad is not None:
                    streams.fetch_backward(relation.handle, relation.index, sources, grad, total, self.operation)

    def _block(self, number: int, reads: bool) -> Tuple[Tensor, Block]:
        """A block and the columns of its sources.

        :param reads: whether rows of sources are read
        """
        none = torch.empty(0, dtype=torch.int64)
        if number >= len(self.nodes):
            return none, Block([], none, none, none, [])
        rows = self.nodes[number]
        indptr, sources, eids = self.relation.in_edges(rows)
        columns, at = torch.unique(sources, return_inverse=True) if reads else (none, none)
        ends = rows.repeat_interleave(indptr.diff())
        return columns, Block([], at, ends, eids, [], nodes=rows)
