"""Queries on a graph: types, counts, degrees, nodes and edges."""

from __future__ import annotations

from typing import Callable, List, Literal, MutableMapping, NamedTuple, Optional, Sequence, Tuple, Union, overload

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.autograd.fetch import fetch
from sar.data.partition_book import CanonicalEtype, canonical

from .columns import SourceColumns, pick_degrees
from .counts import Counts
from .degrees import for_caller
from .refused import refuse_libraries
from .relation import Relation
from .state import GraphState, NodeRows
from .types import ALL, Edges, Etype, InMemory

Form = Literal["uv", "eid", "all"]
Order = Optional[Literal["eid", "srcdst"]]
Ends = Union[Tensor, Tuple[Tensor, Tensor], Tuple[Tensor, Tensor, Tensor]]


class GraphQueries(InMemory):
    """Types, counts and degrees. A graph has all its types; a slice of one relation, those of the relation."""

    _state: GraphState
    _relations: List[Relation]

    # ---- types -------------------------------------------------------------

    @property
    def canonical_etypes(self) -> List[CanonicalEtype]:
        """``(source type, relation, destination type)`` of each relation."""
        return [r.canonical for r in self._relations]

    @property
    def etypes(self) -> List[str]:
        """Names of the relations."""
        return [r.canonical[1] for r in self._relations]

    @property
    def ntypes(self) -> List[str]:
        """Names of the node types."""
        return list(self._state.nodes)

    @property
    def srctypes(self) -> List[str]:
        """Node types that edges may begin at."""
        return self.ntypes

    @property
    def dsttypes(self) -> List[str]:
        """Node types that edges may end at."""
        return self.ntypes

    @property
    def canonical_etypes_global(self) -> List[CanonicalEtype]:
        """Relations of the whole graph."""
        return [r.canonical for r in self._state.relations]

    @property
    def etypes_global(self) -> List[str]:
        """Names of the relations of the whole graph."""
        return [r.canonical[1] for r in self._state.relations]

    @property
    def ntypes_global(self) -> List[str]:
        """Node types of the whole graph."""
        return list(self._state.nodes)

    @property
    def is_homogeneous(self) -> bool:
        """One node type and one relation."""
        return len(self._relations) == 1 and len(self.ntypes) == 1

    @property
    def is_multigraph(self) -> bool:
        """Always true: parallel edges are allowed, and nobody looks for them."""
        return True

    @property
    def src_is_tgt(self) -> bool:
        """Whether source and destination rows are the same nodes: in every full graph, and in no block."""
        return self._state.keep_seeds is None

    @property
    def tgt_in_src(self) -> bool:
        """Whether destination rows are the first source rows: always but for blocks without ``keep_seed_nodes``."""
        return self._state.keep_seeds is not False

    def to_canonical_etype(self, etype: Optional[Etype]) -> CanonicalEtype:
        """The triple for a relation's name; ``None`` is fine where there is one relation.

        :raises KeyError: unknown, or the name of several relations; the message lists those that exist
        """
        return self._relation(etype).canonical

    def get_etype_id(self, etype: Optional[Etype]) -> int:
        """Number of a relation."""
        return self.canonical_etypes.index(self.to_canonical_etype(etype))

    def get_ntype_id(self, ntype: Optional[str]) -> int:
        """Number of a node type."""
        return self.ntypes.index(self._ntype(ntype))

    def get_ntype_id_from_src(self, ntype: Optional[str]) -> int:
        """Number of a node type among :attr:`srctypes`."""
        return self.srctypes.index(self._ntype(ntype, self.srctypes))

    def get_ntype_id_from_dst(self, ntype: Optional[str]) -> int:
        """Number of a node type among :attr:`dsttypes`."""
        return self.dsttypes.index(self._ntype(ntype, self.dsttypes))

    def _relation(self, etype: Optional[Etype]) -> Relation:
        if etype is None:
            if len(self._relations) == 1:
                return self._relations[0]
            raise KeyError(f"this graph has several relations, name one of {self.canonical_etypes}")
        found = canonical(etype, self.canonical_etypes)
        return self._relations[self.canonical_etypes.index(found)]

    def _ntype(self, ntype: Optional[str], among: Optional[Sequence[str]] = None) -> str:
        known = self.ntypes if among is None else among
        if ntype is None:
            if len(known) == 1:
                return known[0]
            raise KeyError(f"this graph has several node types, name one of {list(known)}")
        if ntype not in known:
            raise KeyError(f"node type {ntype!r} is unknown; there are: {', '.join(known)}")
        return ntype

    # ---- counts ------------------------------------------------------------

    def num_nodes(self, ntype: Optional[str] = None) -> int:
        """Own nodes; of one type, or of all. In a block, those that are source or destination rows."""
        return self._sum(self.ntypes, ntype, self._num_nodes)

    def num_src_nodes(self, ntype: Optional[str] = None) -> int:
        """Source rows; of one type, or of all."""
        return self._sum(self.srctypes, ntype, lambda rows: rows.num_src)

    def num_dst_nodes(self, ntype: Optional[str] = None) -> int:
        """Destination rows; of one type, or of all."""
        return self._sum(self.dsttypes, ntype, lambda rows: rows.num_dst)

    def num_nodes_global(self, ntype: Optional[str] = None) -> int:
        """Nodes of the whole graph, over all workers; of one type, or of all."""
        return self._sum(self.ntypes_global, ntype, lambda rows: rows.num_global)

    def num_edges(self, etype: Optional[Etype] = None) -> int:
        """In-edges of own destination rows; of one relation, or of all."""
        if etype is None:
            return sum(r.num_edges for r in self._relations)
        return self._relation(etype).num_edges

    def num_edges_global(self, etype: Optional[Etype] = None) -> int:
        """Edges of the whole graph, over all workers; of one relation, or of all."""
        if etype is None:
            return sum(self._state.edges_global.values())
        return self._state.edges_global[canonical(etype, self.canonical_etypes_global)]

    number_of_nodes, number_of_edges = num_nodes, num_edges
    number_of_src_nodes, number_of_dst_nodes = num_src_nodes, num_dst_nodes
    number_of_nodes_global = num_src_nodes_global = num_dst_nodes_global = num_nodes_global
    number_of_src_nodes_global = number_of_dst_nodes_global = num_nodes_global
    number_of_edges_global = num_edges_global

    def _sum(self, kinds: Sequence[str], ntype: Optional[str], count: Callable[[NodeRows], int]) -> int:
        if ntype is not None:
            kinds = [self._ntype(ntype, kinds)]
        return sum(count(self._state.nodes[kind]) for kind in kinds)

    def _num_nodes(self, rows: NodeRows) -> int:
        if self._state.keep_seeds is not False:
            return rows.num_src
        return len(torch.unique(torch.cat([rows.rows(False), rows.rows(True)])))

    def batch_num_nodes(self, ntype: Optional[str] = None) -> Tensor:
        """Own nodes of each graph in the batch: one graph. A quotient by it is one by the nodes of all workers."""
        refuse_libraries("graph.batch_num_nodes")
        return Counts.of(torch.tensor([self.num_nodes(ntype)]), torch.tensor([self.num_nodes_global(ntype)]))

    def batch_num_edges(self, etype: Optional[Etype] = None) -> Tensor:
        """In-edges of each graph in the batch: one graph. A quotient by it is one by the edges of all workers."""
        refuse_libraries("graph.batch_num_edges")
        return Counts.of(torch.tensor([self.num_edges(etype)]), torch.tensor([self.num_edges_global(etype)]))

    @property
    def batch_size(self) -> int:
        """Graphs in the batch: one."""
        return 1

    # ---- degrees, nodes, edges -----------------------------------------------

    @overload
    def in_degrees(self, v: Edges = ALL, etype: Optional[Etype] = None) -> Tensor: ...
    @overload
    def in_degrees(self, v: int, etype: Optional[Etype] = None) -> int: ...
    def in_degrees(self, v: Union[Edges, int] = ALL, etype: Optional[Etype] = None) -> Union[Tensor, int]:
        """In-degrees of destination rows, int64 ``[num_dst]``; of the rows ``v`` where given, an int for an int.

        Collective for ``edges()[0]``, the sources of edges, which may be other workers' nodes.

        :raises IndexError: a row that this worker does not have
        """
        relation = self._relation(etype)
        degrees = for_caller(self, relation.degrees(out=False))
        return pick_degrees(degrees, v, relation.canonical[2] if self.src_is_tgt else None)

    @overload
    def out_degrees(self, u: Edges = ALL, etype: Optional[Etype] = None) -> Tensor: ...
    @overload
    def out_degrees(self, u: int, etype: Optional[Etype] = None) -> int: ...
    def out_degrees(self, u: Union[Edges, int] = ALL, etype: Optional[Etype] = None) -> Union[Tensor, int]:
        """Out-degrees of source rows over all workers' edges, int64 ``[num_src]``; of the rows ``u`` where given, an
        int for an int.

        In a block, edges of the block count, as in DGL's blocks. Collective for ``edges()[0]``, the sources of edges.

        :raises IndexError: a row that this worker does not have
        """
        relation = self._relation(etype)
        return pick_degrees(relation.degrees(out=True), u, relation.canonical[0])

    @property
    def nodes(self) -> NodeView:
        """``nodes(type)``: own nodes, int64, counted per type; ``nodes[type].data``: their columns."""
        refuse_libraries("graph.nodes")
        return NodeView(self, "ndata", self.ntypes)

    @property
    def srcnodes(self) -> NodeView:
        """The same for source rows. ``features[graph.srcnodes(type)]`` are the features a block takes."""
        return NodeView(self, "srcdata", self.srctypes)

    @property
    def dstnodes(self) -> NodeView:
        """The same for destination rows: the nodes that a block computes."""
        return NodeView(self, "dstdata", self.dsttypes)

    @property
    def edges(self) -> EdgeView:
        """``edges()``: ends of the in-edges; ``edges[relation].data``: their columns."""
        return EdgeView(self)

    @property
    def all_edges(self) -> EdgeView:
        """:attr:`edges`."""
        return EdgeView(self)

    def column_nodes(self, etype: Optional[Etype] = None) -> Tensor:
        """Node ids, of the whole graph and per type, of the columns that :meth:`all_edges` names: own source rows
        first, then the boundary rows of other workers. int64 ``[columns]``. Collective.
        """
        relation = self._relation(etype)
        rows = self._state.nodes[relation.canonical[0]]
        columns = torch.arange(relation.num_columns)
        return fetch(relation, columns, rows.rows(False) + rows.first)

    @property
    def input_nodes(self) -> Tensor:
        """Own nodes that are source rows, int64, counted from the worker's first node over all types; type after type.

        ``features[block.input_nodes]`` are what the block takes where there is one node type.
        """
        return self._over_types(self.srctypes, False)

    @property
    def seeds(self) -> Tensor:
        """Destination nodes, type after type: in a block ids of the whole graph over all types, as
        :func:`sar.construct_mfgs` takes them; in a full graph counted from the worker's first node. int64.
        """
        local = self._over_types(self.dsttypes, True)
        return local if self.src_is_tgt else local + self._state.part_ranges[_session.current().rank][0]

    def _over_types(self, kinds: Sequence[str], dst: bool) -> Tensor:
        found = [self._state.nodes[kind].rows(dst) + self._state.nodes[kind].offset for kind in kinds]
        return torch.cat(found) if len(found) != 1 else found[0]


class OneRelation:
    """Goes in front of a class whose objects have a single relation: the types are those at its ends."""

    _relations: List[Relation]

    @property
    def ntypes(self) -> List[str]:
        source, _, target = self._relations[0].canonical
        return [source] if source == target else [source, target]

    @property
    def srctypes(self) -> List[str]:
        return [self._relations[0].canonical[0]]

    @property
    def dsttypes(self) -> List[str]:
        return [self._relations[0].canonical[2]]


class Space(NamedTuple):
    """What ``graph.nodes["t"]`` gives: the columns of one type."""

    data: MutableMapping[str, Tensor]


class NodeView:
    """``graph.srcnodes`` and its relatives: called, the nodes of a type; indexed, their columns."""

    def __init__(self, graph: GraphQueries, side: str, kinds: List[str]) -> None:
        self._graph, self._side, self._kinds = graph, side, kinds

    def __call__(self, ntype: Optional[str] = None) -> Tensor:
        """Own nodes of a type, int64: row numbers of the worker's features of that type.

        :raises KeyError: unknown, or not named where there are several
        """
        rows = self._graph._state.nodes[self._graph._ntype(ntype, self._kinds)]
        if self._side == "ndata" and not self._graph.tgt_in_src:
            return torch.unique(torch.cat([rows.rows(False), rows.rows(True)]))
        return rows.rows(self._side == "dstdata")

    def __getitem__(self, ntype: Optional[str]) -> Space:
        kind = self._graph._ntype(None if ntype == slice(None) else ntype, self._kinds)
        frame = self._graph._state.frames[kind]
        if self._side == "ndata":
            refuse_ndata(self._graph)
        return Space(getattr(frame, self._side))


class EdgeView:
    """``graph.edges``: called, the ends of the in-edges; indexed, their columns."""

    def __init__(self, graph: GraphQueries) -> None:
        self._graph = graph

    @overload
    def __call__(
        self, form: Literal["uv"] = "uv", order: Order = "eid", etype: Optional[Etype] = None
    ) -> Tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, form: Literal["eid"], order: Order = "eid", etype: Optional[Etype] = None) -> Tensor: ...
    @overload
    def __call__(
        self, form: Literal["all"], order: Order = "eid", etype: Optional[Etype] = None
    ) -> Tuple[Tensor, Tensor, Tensor]: ...
    def __call__(self, form: Form = "uv", order: Order = "eid", etype: Optional[Etype] = None) -> Ends:
        """Ends of the in-edges of own destination rows, int64 ``[num_edges]`` each.

        Sources are columns: below ``num_src_nodes`` own source rows, from there on boundary rows of other workers,
        which ``column_nodes`` names; ``in_degrees`` and ``out_degrees`` take them, collectively. Destinations are own
        destination rows.

        :param form: ``"uv"``: sources and destinations; ``"eid"``: numbers of the edges; ``"all"``: all three
        :param order: ``"eid"``: the order of edge tensors; ``"srcdst"``: by source, then destination
        :raises ValueError: another form or order
        """
        if form not in ("uv", "eid", "all"):
            raise ValueError(f"edges: form is {form!r}; give 'uv', 'eid' or 'all'")
        if order not in ("eid", "srcdst", None):
            raise ValueError(f"edges: order is {order!r}; give 'eid' or 'srcdst'")
        relation = self._graph._relation(etype)
        src, dst = edge_ends(relation)
        eid = torch.arange(len(src))
        if order == "srcdst":
            eid = torch.argsort(dst, stable=True)
            eid = eid[torch.argsort(src[eid], stable=True)]
            src, dst = src[eid], dst[eid]
        src = SourceColumns.of(relation, src)
        return (src, dst) if form == "uv" else eid if form == "eid" else (src, dst, eid)

    def __getitem__(self, etype: Etype) -> Space:
        relation = self._graph._relation(None if etype == slice(None) else etype)
        return Space(self._graph._state.edge_frames[relation.canonical])


def edge_ends(relation: Relation) -> Tuple[Tensor, Tensor]:
    """Columns and destination rows of the edges, in the order of edge tensors."""
    indptr, columns, eids = relation.in_edges(torch.arange(relation.num_dst))
    rows = torch.repeat_interleave(torch.arange(relation.num_dst), indptr.diff())
    src, dst = torch.empty_like(columns), torch.empty_like(rows)
    src[eids], dst[eids] = columns, rows
    return src, dst


def refuse_ndata(graph: GraphQueries) -> None:
    """A block has two sets of rows."""
    if not graph.src_is_tgt:
        raise ValueError("a block has source rows and destination rows, no ndata: use srcdata or dstdata")
