"""Which pairs of nodes are edges, asked of the owners of destinations."""

from __future__ import annotations

from typing import List, Tuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from sar._engine import session as _session
from sar.distributed.collectives import exchange_tensors
from sar.graph.manager import GraphShardManager
from sar.graph.queries import edge_ends
from sar.graph.relation import Relation

from .asked import owners


class Known:
    """The edges of a graph of one relation.

    :ivar nodes: what workers own of source nodes, and of destination nodes
    """

    def __init__(self, graph: GraphShardManager) -> None:
        relation = graph._relations[0]
        self.nodes = graph._state.nodes[relation.canonical[0]], graph._state.nodes[relation.canonical[2]]
        columns, rows = edge_ends(relation)
        self._codes = np.unique(self._coded(graph.column_nodes()[columns], rows))

    def _coded(self, sources: Tensor, rows: Tensor) -> np.ndarray:
        found: np.ndarray = (rows * self.nodes[0].num_global + sources).numpy()
        return found

    def edges(self, sources: Tensor, rows: Tensor) -> Tensor:
        """Whether there are edges from nodes to own nodes: bool ``[n]``. Local.

        :param sources: ids of nodes, int64 ``[n]``
        :param rows: own destination rows, int64 ``[n]``
        """
        if not len(self._codes):
            return torch.zeros(len(sources), dtype=torch.bool)
        codes = self._coded(sources, rows)
        order = codes.argsort()  # searching for one number after the other takes longer than sorting them
        codes = codes[order]
        place = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        found = np.empty(len(codes), bool)
        found[order] = self._codes[place] == codes
        return torch.from_numpy(found)

    def to_owners(self, targets: Tensor, *more: Tensor) -> Tuple[List[Tensor], List[int], Tensor]:
        """Sends pairs to the owners of their destinations. Collective.

        :param targets: ids of destinations, int64 ``[n]``
        :param more: int64 ``[n]`` each, that go with them
        :returns: what came of ``more``, and own rows; how many came from each rank; in which order they were sent
        """
        starts = torch.tensor(self.nodes[1].starts)
        owner, row = owners(starts.diff(), targets)
        order = owner.argsort(stable=True)
        sizes = torch.bincount(owner, minlength=_session.current().world).tolist()
        got = exchange_tensors(torch.stack([*more, row], 1)[order].split(sizes))
        return list(torch.cat(got).unbind(1)), [len(part) for part in got], order

    def asked(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Whether there are edges between any nodes: bool ``[n]``. Collective.

        :param sources: ids of nodes, int64 ``[n]``
        :param targets: likewise
        """
        (own, rows), sizes, order = self.to_owners(targets, sources)
        found = torch.empty(len(order), dtype=torch.bool)
        found[order] = torch.cat(exchange_tensors(self.edges(own, rows).split(sizes)))
        return found


_known: WeakKeyDictionary[Relation, Known] = WeakKeyDictionary()


def known(graph: GraphShardManager) -> Known:
    """The edges of a graph of one relation, 8 bytes for each of this worker's, kept with it. Collective the first
    time."""
    found = _known.get(graph._relations[0])
    if found is None:
        found = _known[graph._relations[0]] = Known(graph)
    return found
