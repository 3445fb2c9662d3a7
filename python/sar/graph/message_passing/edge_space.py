"""A relation with the columns of its sources, destinations and edges."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, MutableMapping, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.data.records import ShardInfo
from sar.graph.edge_tensor.base import values
from sar.graph.relation import Relation
from sar.graph.state import GraphState
from sar.graph.udf.batches import IDS

LABELS = {"u": "srcdata", "v": "dstdata", "e": "edata"}


class EdgeSpace:
    """A relation of a graph and the columns of its source nodes ("u"), destination nodes ("v") and edges ("e").

    :param state: the graph
    :param relation: one of its relations
    :param positions: of its edges, where they are some of a larger relation's
    """

    def __init__(self, state: GraphState, relation: Relation, positions: Optional[Tensor] = None) -> None:
        self.relation = relation
        self.state = state
        self.etype = relation.canonical
        self.source, self.target = state.frames[self.etype[0]], state.frames[self.etype[2]]
        self.edge = state.edge_frames[self.etype]
        self._positions = positions

    def columns(self, side: str) -> MutableMapping[str, Any]:
        """The columns of a side."""
        return {"u": self.source.srcdata, "v": self.target.dstdata, "e": self.edge}[side]

    def count(self, side: str) -> Tuple[int, str]:
        """How many rows a column of this side has, and of what."""
        relation = self.relation
        return {
            "u": (relation.num_src, "source nodes"),
            "v": (relation.num_dst, "destination nodes"),
            "e": (relation.num_edges, "in-edges"),
        }[side]

    def label(self, side: str, name: str) -> str:
        """How errors call a column."""
        return f"{LABELS[side]}[{name!r}]"

    def names(self) -> Dict[str, List[str]]:
        """Names of the columns of each side."""
        return {side: list(self.columns(side)) for side in "uve"}

    def column(self, side: str, name: str) -> Tensor:
        """A column, of which the values are needed; ``"n"`` are the destinations of a reduce function."""
        side = "v" if side == "n" else side
        if name == IDS:
            return self.ids(side)
        column: Tensor = values(self.columns(side)[name])
        return column

    def ids(self, side: str) -> Tensor:
        """Ids of nodes, counted per type over all workers, or positions of edges; int64."""
        if side == "e":
            return torch.arange(self.relation.num_edges) if self._positions is None else self._positions
        nodes = self.state.nodes[self.etype[0] if side == "u" else self.etype[2]]
        return nodes.rows(dst=side == "v") + nodes.first

    def results(self) -> MutableMapping[str, Tensor]:
        """Where columns of destinations go; in a full graph these are the source nodes as well."""
        return self.target.ndata if self.target.square else self.target.dstdata

    def shard(self, peer: int) -> ShardInfo:
        """What functions that ask for ``sar_shard_info`` get with edges from a worker's nodes."""
        ranges, starts = self.state.part_ranges, self._shard_starts
        return ShardInfo(peer, ranges[peer], ranges[_session.current().rank], (starts[peer], starts[peer + 1]))

    @functools.cached_property
    def _shard_starts(self) -> List[int]:
        """The first edge of each shard, and the end."""
        _, columns, _ = self.relation.in_edges(torch.arange(self.relation.num_dst))
        counts = torch.bincount(self.relation.columns_owner()[columns], minlength=len(self.state.part_ranges))
        return [0, *counts.cumsum(0).tolist()]
