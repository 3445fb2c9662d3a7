"""Original ids of nodes: which node has one, and which one a node has.

A node's original id is its number in the graph that was partitioned, whatever the number of workers. Workers share a
table of them by ranges of original ids, so each holds 1/P of it.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.distributed.agreement import largest_of_all, raise_everywhere
from sar.distributed.collectives import exchange_tensors
from sar.graph.readout import rows_of_all
from sar.graph.state import GraphState, NodeRows

from .asked import fetch_rows


class OriginalIds:
    """Of the nodes of one type. Where a partition has none, those that it gave the nodes stand for them.

    :param own: of own nodes, int64; None: the partition has none
    """

    def __init__(self, nodes: NodeRows, own: Optional[Tensor]) -> None:
        self.num_nodes = nodes.num_global
        self._own = own
        self._table = None if own is None else self._shared(nodes, own)

    def _shared(self, nodes: NodeRows, own: Tensor) -> Tensor:
        """This worker's range of the table: the node of each original id. Collective."""
        session = _session.current()
        each = -(-self.num_nodes // session.world)
        first = min(self.num_nodes, session.rank * each)
        error = None
        if len(own) and not (int(own.min()) >= 0 and int(own.max()) < self.num_nodes):
            error = ValueError(
                f"original ids reach from {int(own.min())} to {int(own.max())} for {self.num_nodes} nodes"
            )
        raise_everywhere("reading original ids", error)
        pairs = torch.stack([own, torch.arange(len(own)) + nodes.first], 1)[own.argsort()]
        sizes = torch.bincount(own // max(1, each), minlength=session.world).tolist()
        got = torch.cat(exchange_tensors(pairs.split(sizes)))
        table = torch.full((min(self.num_nodes, first + each) - first,), -1, dtype=torch.int64)
        table[got[:, 0] - first] = got[:, 1]
        if bool((table < 0).any()):
            error = ValueError(f"no node has the original id {int((table < 0).nonzero()[0]) + first}")
        raise_everywhere("reading original ids", error)
        return table

    def of_own(self, nodes: NodeRows) -> Tensor:
        """Those of own nodes, int64."""
        return nodes.rows(True) + nodes.first if self._own is None else self._own

    def nodes(self, ids: Tensor) -> Tensor:
        """The nodes that have some original ids, int64. Collective.

        Where a worker asks for more than there are nodes, all get the table for the time of the call: it is smaller
        than what was asked.
        """
        if self._table is None:
            return ids
        if largest_of_all(len(ids)) >= self.num_nodes:
            return rows_of_all(self._table)[ids]
        return fetch_rows(self._table, ids)


def originals(state: GraphState, kind: str) -> OriginalIds:
    """Those of a node type of a graph. Collective the first time."""
    found: Any = state.originals.get(kind)
    if found is None:
        read = state.node_keys.get(kind)
        found = OriginalIds(state.nodes[kind], None if read is None else read().to(torch.int64))
        state.originals[kind] = found
    made: OriginalIds = found
    return made
