"""The graph objects that models see in place of a DGL graph."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, MutableMapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _session
from .._book import CanonicalEtype, canonical
from .._partition import made
from .frame import EdgeFrame, NodeFrame, TypedView
from .message import Etype, MessagePassing
from .relation import Relation

ALL = "__ALL__"
"""What DGL passes for "every node"."""


class Rows:
    """What a graph manager is made of; slices of one graph share the frames.

    :param relations: in canonical order
    :param frames: columns of each node type
    :param edge_frames: columns of each relation
    :param part_ranges: node ids of each partition over all types
    :param partition_book: the partition book, or what makes it
    :param counts: per node type, own nodes and nodes over all workers
    """

    def __init__(
        self,
        relations: Sequence[Relation],
        frames: Dict[str, NodeFrame],
        edge_frames: Dict[CanonicalEtype, EdgeFrame],
        counts: Dict[str, Tuple[int, int]],
        part_ranges: List[Tuple[int, int]],
        partition_book: Any,
    ) -> None:
        self.relations = list(relations)
        self.frames = frames
        self.edge_frames = edge_frames
        self.counts = counts
        self.part_ranges = part_ranges
        self.partition_book = partition_book


class GraphShardManager(MessagePassing):
    """A worker's part of a graph split over all workers, with the interface of a DGL graph.

    Rows are the worker's own nodes, in ascending id; edges are the in-edges of own nodes, in ascending id. Operations
    that need other workers' rows (:meth:`update_all`) are collective: every worker calls them in the same order, also
    one without nodes. Made by :func:`sar.construct_full_graph`.
    """

    is_block = True
    """Layers then take source and destination features, which here are those of the same nodes."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._relations = rows.relations

    # ---- types -------------------------------------------------------------

    @property
    def canonical_etypes(self) -> List[CanonicalEtype]:
        """``(source type, relation, destination type)`` of each relation."""
        return [r.canonical for r in self._relations]

    @property
    def etypes(self) -> List[str]:
        return [r.canonical[1] for r in self._relations]

    @property
    def ntypes(self) -> List[str]:
        return list(self._rows.counts)

    @property
    def srctypes(self) -> List[str]:
        return list(self._rows.counts)

    @property
    def dsttypes(self) -> List[str]:
        return list(self._rows.counts)

    @property
    def canonical_etypes_global(self) -> List[CanonicalEtype]:
        return self.canonical_etypes

    @property
    def etypes_global(self) -> List[str]:
        return self.etypes

    @property
    def ntypes_global(self) -> List[str]:
        return self.ntypes

    @property
    def is_homogeneous(self) -> bool:
        return len(self._relations) == 1 and len(self._rows.counts) == 1

    def to_canonical_etype(self, etype: Optional[Etype]) -> CanonicalEtype:
        """The triple for a relation's name; ``None`` is fine where there is one relation. Raises KeyError."""
        return self._relation(etype).canonical

    def get_etype_id(self, etype: Optional[Etype]) -> int:
        """Number of a relation."""
        return self.canonical_etypes.index(self.to_canonical_etype(etype))

    def get_ntype_id(self, ntype: Optional[str]) -> int:
        """Number of a node type."""
        return self.ntypes.index(self._ntype(ntype))

    def _relation(self, etype: Optional[Etype]) -> Relation:
        if etype is None:
            if len(self._relations) == 1:
                return self._relations[0]
            raise KeyError(f"this graph has several relations, name one of {self.canonical_etypes}")
        found = canonical(etype, self.canonical_etypes)
        return self._relations[self.canonical_etypes.index(found)]

    def _ntype(self, ntype: Optional[str]) -> str:
        if ntype is None:
            if len(self._rows.counts) == 1:
                return next(iter(self._rows.counts))
            raise KeyError(f"this graph has several node types, name one of {self.ntypes}")
        if ntype not in self._rows.counts:
            raise KeyError(f"node type {ntype!r} is unknown; there are: {', '.join(self.ntypes)}")
        return ntype

    # ---- counts ------------------------------------------------------------

    def num_nodes(self, ntype: Optional[str] = None) -> int:
        """Own nodes; of one type, or of all."""
        return self._count(ntype, 0)

    def num_nodes_global(self, ntype: Optional[str] = None) -> int:
        """Nodes over all workers; of one type, or of all."""
        return self._count(ntype, 1)

    def num_src_nodes(self, ntype: Optional[str] = None) -> int:
        """Own nodes that edges begin at."""
        return self._count(ntype, 0)

    def num_dst_nodes(self, ntype: Optional[str] = None) -> int:
        """Own nodes that edges end at."""
        return self._count(ntype, 0)

    def num_edges(self, etype: Optional[Etype] = None) -> int:
        """In-edges of own nodes; of one relation, or of all."""
        if etype is None:
            return sum(r.num_edges for r in self._relations)
        return self._relation(etype).num_edges

    def num_edges_global(self, etype: Optional[Etype] = None) -> int:
        """Edges over all workers; of one relation, or of all."""
        if etype is None:
            return sum(r.info.num_edges_global for r in self._relations)
        return self._relation(etype).info.num_edges_global

    number_of_nodes = num_nodes
    number_of_edges = num_edges
    number_of_src_nodes = num_src_nodes
    number_of_dst_nodes = num_dst_nodes
    number_of_nodes_global = num_src_nodes_global = num_dst_nodes_global = num_nodes_global
    number_of_src_nodes_global = number_of_dst_nodes_global = num_nodes_global
    number_of_edges_global = num_edges_global

    def _count(self, ntype: Optional[str], which: int) -> int:
        if ntype is None:
            return sum(c[which] for c in self._rows.counts.values())
        return self._rows.counts[self._ntype(ntype)][which]

    def in_degrees(self, v: Any = ALL, etype: Optional[Etype] = None) -> Tensor:
        """In-degrees of own nodes, int64 ``[num_dst]``; of the rows ``v`` where given."""
        return _pick(self._relation(etype).degrees(out=False), v)

    def out_degrees(self, u: Any = ALL, etype: Optional[Etype] = None) -> Tensor:
        """Out-degrees of own nodes over all workers' edges, int64 ``[num_src]``; of the rows ``u`` where given."""
        return _pick(self._relation(etype).degrees(out=True), u)

    def batch_num_nodes(self, ntype: Optional[str] = None) -> Tensor:
        """Nodes of each graph in the batch: one graph."""
        return torch.tensor([self.num_nodes(ntype)])

    def batch_num_edges(self, etype: Optional[Etype] = None) -> Tensor:
        """Edges of each graph in the batch: one graph."""
        return torch.tensor([self.num_edges(etype)])

    # ---- data --------------------------------------------------------------

    @property
    def srcdata(self) -> MutableMapping[str, Any]:
        """Columns of own nodes as sources, ``[num_src, ...]``; ``{type: tensor}`` where there are several types."""
        return self._data("srcdata")

    @property
    def dstdata(self) -> MutableMapping[str, Any]:
        """Columns of own nodes as destinations."""
        return self._data("dstdata")

    @property
    def ndata(self) -> MutableMapping[str, Any]:
        """Columns of own nodes, as sources and as destinations."""
        return self._data("ndata")

    @property
    def edata(self) -> MutableMapping[str, Any]:
        """Columns of in-edges, in ascending id."""
        if len(self._relations) == 1:
            return self._rows.edge_frames[self._relations[0].canonical]
        return TypedView({r.canonical: self._rows.edge_frames[r.canonical] for r in self._relations})

    def _data(self, side: str) -> MutableMapping[str, Any]:
        names = self._side_types(side)
        views: Dict[Any, MutableMapping[str, Tensor]] = {t: getattr(self._rows.frames[t], side) for t in names}
        return views[names[0]] if len(names) == 1 else TypedView(views)

    def _side_types(self, side: str) -> List[str]:
        return self.ntypes

    @contextmanager
    def local_scope(self) -> Iterator[None]:
        """Columns set inside are gone afterwards, and those replaced or removed are back."""
        saved_nodes = [(frame, frame.snapshot()) for frame in self._rows.frames.values()]
        saved_edges = [(frame, frame.snapshot()) for frame in self._rows.edge_frames.values()]
        try:
            yield
        finally:
            for frame, columns in saved_nodes:
                frame.restore(columns)
            for edge_frame, edge_columns in saved_edges:
                edge_frame.restore(edge_columns)

    # ---- where things are --------------------------------------------------

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def idtype(self) -> torch.dtype:
        return torch.int64

    def to(self, device: Any, **kwargs: Any) -> GraphShardManager:
        """The graph itself; it lives in CPU memory.

        :raises TypeError: another device than the CPU
        """
        if torch.device(device).type != "cpu":
            raise TypeError(f"graphs work on the CPU for now, not on {device}; leave the model and features on the CPU")
        return self

    @property
    def partition_book(self) -> Any:
        """DGL's partition book where DGL is installed, else SAR's own."""
        self._rows.partition_book = made(self._rows.partition_book)
        return self._rows.partition_book

    @property
    def _partition_book(self) -> Any:
        return self.partition_book

    @property
    def node_ranges(self) -> List[Tuple[int, int]]:
        """Node ids that each worker owns, over all types."""
        return list(self._rows.part_ranges)

    @property
    def tgt_node_range(self) -> Tuple[int, int]:
        """Node ids that this worker owns, over all types."""
        return self._rows.part_ranges[_session.current().rank]

    def __getitem__(self, etype: Etype) -> GraphShardManager:
        """The graph of one relation, sharing the columns of this one."""
        return RelationView(self._rows, self._relation(etype))

    def __repr__(self) -> str:
        kinds = ", ".join(f"{t}: {own} of {everywhere} nodes" for t, (own, everywhere) in self._rows.counts.items())
        return (
            f"{type(self).__name__}({kinds}; {self.num_edges()} of {self.num_edges_global()} edges; "
            f"relations {self.canonical_etypes})"
        )


class HeteroGraphShardManager(GraphShardManager):
    """A :class:`GraphShardManager` with several node types or relations."""


class RelationView(GraphShardManager):
    """One relation of a graph: what ``graph[etype]`` gives."""

    def __init__(self, rows: Rows, relation: Relation) -> None:
        super().__init__(rows)
        self._relations = [relation]

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

    @property
    def is_homogeneous(self) -> bool:
        return len(self.ntypes) == 1

    def _side_types(self, side: str) -> List[str]:
        return {"srcdata": self.srctypes, "dstdata": self.dsttypes}.get(side, self.ntypes)

    def num_nodes(self, ntype: Optional[str] = None) -> int:
        return super().num_nodes(ntype) if ntype else sum(super(RelationView, self).num_nodes(t) for t in self.ntypes)

    def num_src_nodes(self, ntype: Optional[str] = None) -> int:
        return super().num_src_nodes(ntype or self.srctypes[0])

    def num_dst_nodes(self, ntype: Optional[str] = None) -> int:
        return super().num_dst_nodes(ntype or self.dsttypes[0])

    number_of_nodes = num_nodes
    number_of_src_nodes = num_src_nodes
    number_of_dst_nodes = num_dst_nodes


def _pick(degrees: Tensor, rows: Any) -> Tensor:
    if isinstance(rows, str) and rows == ALL:
        return degrees
    return degrees[rows]
