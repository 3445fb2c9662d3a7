"""Edges grouped by the worker that owns their sources, for scripts. The engine does not store them: they are computed
on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import blocks, session as _session
from sar.data.partition_book import CanonicalEtype
from sar.data.records import ShardInfo

from .queries import GraphQueries, edge_ends

if TYPE_CHECKING:
    from sar.integrations.types import DGLBlock, DGLGraph


@dataclass(eq=False, repr=False)
class GraphShard:
    """The edges from one worker's nodes into own destination rows. Ids are those of the whole graph, per type.

    :param edges: sources and destinations, int64 ``[n]`` each
    :param src_range: ids ``(start, end)`` of that worker's nodes
    :param tgt_range: of own nodes
    :param edge_type_names: names of the relations
    :param edge_features: columns of the edges
    """

    edges: Tuple[Tensor, Tensor]
    src_range: Tuple[int, int]
    tgt_range: Tuple[int, int]
    edge_type_names: List[CanonicalEtype]
    edge_features: Dict[str, Tensor]
    shard_info: Optional[ShardInfo] = None

    def __post_init__(self) -> None:
        self.unique_src_nodes, self._sources = torch.unique(self.edges[0], return_inverse=True)
        self.unique_tgt_nodes, self._targets = torch.unique(self.edges[1], return_inverse=True)

    @property
    def graph(self) -> DGLBlock:
        """The edges as a DGL block between the nodes that have some. Needs DGL."""
        return self._block(False)

    @property
    def graph_reverse(self) -> DGLBlock:
        """The same with directions swapped. Needs DGL."""
        return self._block(True)

    def _block(self, swapped: bool) -> DGLBlock:
        from sar.integrations.dgl import graphs as interop

        sides = [(self._sources, len(self.unique_src_nodes)), (self._targets, len(self.unique_tgt_nodes))]
        (src, num_src), (dst, num_dst) = reversed(sides) if swapped else sides
        return interop.block((src, dst), num_src, num_dst, self.edge_features)


class Shards(GraphQueries):
    """The edges of a graph as scripts of the older package ask for them."""

    @property
    def graph_shards(self) -> List[GraphShard]:
        """Per worker q, the edges from q's nodes into own destination rows, in the order of edge tensors. For graphs of
        one relation. Collective."""
        relation = self._relation(None)
        source, _, target = relation.canonical
        ids = self.column_nodes()
        src, dst = edge_ends(relation)
        rows = self._state.nodes[target]
        to = (rows.rows(True) + rows.first)[dst]
        owner = relation.columns_owner()[src].long()
        columns = dict(self._state.edge_frames[relation.canonical])
        made, at = [], 0
        ranges = self._state.type_ranges
        for q in range(_session.current().world):
            mine = (owner == q).nonzero().view(-1)
            features = {name: column[mine] for name, column in columns.items()}
            own = ranges[target][_session.current().rank]
            info = ShardInfo(q, ranges[source][q], own, (at, at + len(mine)))
            made.append(
                GraphShard((ids[src[mine]], to[mine]), info.src_node_range, own, self.canonical_etypes, features, info)
            )
            at += len(mine)
        return made

    @property
    def indices_required_from_me(self) -> List[Tensor]:
        """Per worker q, this one included, the own source rows that q reads, int64. For graphs of one relation."""
        relation, session = self._relation(None), _session.current()
        sizes = {pair["peer"]: pair["send_rows"] for pair in relation.boundary()}
        found = []
        for q in range(session.world):
            if q == session.rank:
                columns = edge_ends(relation)[0]
                found.append(torch.unique(columns[columns < relation.num_src]))
            else:
                rows = blocks.send_rows(relation.handle, relation.index, q, sizes[q])
                found.append(rows.sort().values)  # they travel in an order of their own
        return found

    @property
    def sizes_expected_from_others(self) -> List[int]:
        """Per worker q, how many of its rows this worker reads. For graphs of one relation."""
        rank = _session.current().rank
        sizes = {pair["peer"]: pair["receive_rows"] for pair in self._relation(None).boundary()}
        sizes[rank] = len(self.indices_required_from_me[rank])
        return [sizes[q] for q in range(_session.current().world)]

    @property
    def sampling_graph(self) -> DGLGraph:
        """All in-edges of own nodes as a DGL graph of the whole graph's ids, columns of edges included. Collective
        where it is first asked for; it is kept.

        :raises ImportError: DGL is not installed
        """
        from sar.integrations.dgl import graphs as interop

        kept = self._state.sampling_graphs
        key = tuple(self.canonical_etypes)
        if key in kept:
            return kept[key]
        ends: Dict[Any, Tuple[Tensor, Tensor]] = {}
        columns = {}
        for relation in self._relations:
            rows = self._state.nodes[relation.canonical[2]]
            src, dst = edge_ends(relation)
            ends[relation.canonical] = (
                self.column_nodes(relation.canonical)[src],
                (rows.rows(True) + rows.first)[dst],
            )
            columns[relation.canonical] = dict(self._state.edge_frames[relation.canonical])
        sizes = {kind: self._state.nodes[kind].num_global for kind in self.ntypes}
        kept[key] = interop.whole_graph(ends, sizes, columns)
        return kept[key]
