"""The graph objects that take the place of a DGL graph."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, MutableMapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.data.partition import made
from sar.data.partition_book import CanonicalEtype, RangePartitionBook, canonical

from .block import DistributedBlock, HeteroDistributedBlock, distributed_block
from .few_rows import FewRows
from .frames import TypedView, kept_columns
from .layer_support import LayerSupport
from .queries import EdgeView, OneRelation, refuse_ndata
from .refused import IsBlock, Refused, refuse_libraries, refuse_smallest
from .relation import Relation
from .shards import Shards
from .state import GraphState
from .totals import Totals
from .types import ALL, Etype

if TYPE_CHECKING:
    from typing_extensions import Self


__all__ = ["ALL", "Etype", "GraphShardManager", "HeteroGraphShardManager", "RelationView"]


class GraphShardManager(Totals, Shards, LayerSupport, Refused):
    """A worker's part of a graph split over all workers, with the interface of a DGL graph.

    Rows are the worker's own nodes, in ascending id; edges are the in-edges of own nodes, in ascending id. Operations
    that need other workers' rows (:meth:`update_all`) are collective: every worker calls them in the same order, also
    one without nodes. Made by :func:`sar.load` and :func:`sar.construct_full_graph`, and by :func:`sar.construct_mfgs`,
    whose graphs hold the edges into some of the own nodes.
    """

    is_block = IsBlock()
    """Layers then take source and destination features, which in a full graph are those of the same nodes."""

    def __init__(self, state: GraphState) -> None:
        self._state = state
        self._relations = state.relations

    # ---- data --------------------------------------------------------------

    @property
    def srcdata(self) -> MutableMapping[str, Tensor]:
        """Columns of source rows, ``[num_src, ...]``; ``{type: tensor}`` where there are several types."""
        return self._data("srcdata", self.srctypes)

    @property
    def dstdata(self) -> MutableMapping[str, Tensor]:
        """Columns of destination rows, ``[num_dst, ...]``; ``{type: tensor}`` where there are several types."""
        return self._data("dstdata", self.dsttypes)

    @property
    def ndata(self) -> MutableMapping[str, Tensor]:
        """Columns of own nodes, as sources and as destinations.

        :raises ValueError: in a block, where those differ
        """
        refuse_ndata(self)
        refuse_smallest("graph.ndata")
        return self._data("ndata", self.ntypes)

    @property
    def edata(self) -> MutableMapping[str, Tensor]:
        """Columns of in-edges, in ascending id; ``{(source, relation, destination): tensor}`` where there are several
        relations (written also by name of the relation)."""
        refuse_smallest("graph.edata")
        if len(self._relations) == 1:
            return self._state.edge_frames[self._relations[0].canonical]
        columns: MutableMapping[str, Any] = EdgeTypedView(
            {r.canonical: self._state.edge_frames[r.canonical] for r in self._relations}
        )
        return columns

    def _node_columns(self) -> Dict[str, Tensor]:
        frames = self._state.frames
        return {f"{kind}/{name}": column for kind, frame in frames.items() for name, column in frame.dstdata.items()}

    def _classes(self) -> Dict[str, int]:
        return self._state.classes

    def _data(self, side: str, names: Sequence[str]) -> MutableMapping[str, Any]:
        views: Dict[Any, MutableMapping[str, Tensor]] = {t: getattr(self._state.frames[t], side) for t in names}
        return views[names[0]] if len(names) == 1 else TypedView(views)

    @contextmanager
    def local_scope(self) -> Iterator[None]:
        """Columns set inside are gone afterwards, and those replaced or removed are back."""
        few = any(r.num_dst < 2 or r.num_edges < 2 for r in self._relations)
        rows: Any = FewRows() if few else nullcontext()  # layers of DGL begin here
        with rows, kept_columns([*self._state.frames.values(), *self._state.edge_frames.values()]):
            yield

    def local_var(self) -> Self:
        """The same graph with columns of its own: what is set there does not appear here."""
        return type(self)(self._state.copy())

    # ---- where things are --------------------------------------------------

    @property
    def idtype(self) -> torch.dtype:
        """dtype of node and edge numbers."""
        refuse_libraries("graph.idtype")
        return torch.int64

    @property
    def partition_book(self) -> RangePartitionBook:
        """DGL's partition book where DGL is installed, else SAR's own."""
        self._state.partition_book = made(self._state.partition_book)
        return self._state.partition_book

    @property
    def _partition_book(self) -> Any:
        return self.partition_book

    @property
    def node_ranges(self) -> List[Tuple[int, int]]:
        """Node ids that each worker owns, over all types."""
        return list(self._state.part_ranges)

    @property
    def tgt_node_range(self) -> Tuple[int, int]:
        """Node ids that this worker owns, over all types."""
        return self._state.part_ranges[_session.current().rank]

    @property
    def local_src_node_range(self) -> Tuple[int, int]:
        """The same: a worker's source rows are nodes of its own."""
        return self.tgt_node_range

    @property
    def edges(self) -> EdgeView:
        refuse_libraries("graph.edges")
        return super().edges

    @property
    def all_edges(self) -> EdgeView:
        refuse_libraries("graph.all_edges")
        return super().all_edges

    # ---- relations, shards, other forms --------------------------------------

    def __getitem__(self, etype: Etype) -> GraphShardManager:
        """The graph of one relation, sharing the columns of this one."""
        return RelationView(self._state, self._relation(etype))

    @property
    def graph_shard_managers(self) -> Dict[int, GraphShardManager]:
        """The graph of each relation, by its number."""
        return {n: RelationView(self._state, relation) for n, relation in enumerate(self._state.relations)}

    def get_full_partition_graph(
        self, delete_shard_data: bool = True
    ) -> Union[DistributedBlock, HeteroDistributedBlock, GraphShardManager]:
        """The same graph for one-shot aggregation: setting a column of its ``srcdata`` fetches all boundary rows at
        once, and what follows runs on this worker alone, in DGL. Collective.

        :param delete_shard_data: whether the graph itself is not needed any more; both ways it stays usable here
        :returns: a :class:`sar.DistributedBlock`; where there are several relations, one for each. Without DGL, the
            graph itself, which computes the same
        """
        return distributed_block(self)

    def __repr__(self) -> str:
        nodes, square = self._state.nodes, self.src_is_tgt
        own = {t: str(r.num_src) if square else f"{r.num_src} to {r.num_dst}" for t, r in nodes.items()}
        kinds = ", ".join(f"{t}: {own[t]} of {rows.num_global} nodes" for t, rows in nodes.items())
        return (
            f"{type(self).__name__}({kinds}; {self.num_edges()} of {self.num_edges_global()} edges; "
            f"relations {self.canonical_etypes})"
        )


class HeteroGraphShardManager(GraphShardManager):
    """A :class:`GraphShardManager` with several node types or relations.

    Columns of several types at once, as ``graph.ndata["h"]``, are dictionaries; ``graph.nodes[type].data["h"]`` and
    ``graph.edges[relation].data["w"]`` are tensors.
    """

    if TYPE_CHECKING:
        srcdata: MutableMapping[str, Mapping[str, Tensor]]  # type: ignore[assignment]
        dstdata: MutableMapping[str, Mapping[str, Tensor]]  # type: ignore[assignment]
        ndata: MutableMapping[str, Mapping[str, Tensor]]  # type: ignore[assignment]
        edata: MutableMapping[str, Mapping[Etype, Tensor]]  # type: ignore[assignment]


class RelationView(OneRelation, GraphShardManager):
    """One relation of a graph: what ``graph[etype]`` gives."""

    def __init__(self, state: GraphState, relation: Relation) -> None:
        super().__init__(state)
        self._relations = [relation]

    def local_var(self) -> Self:
        return type(self)(self._state.copy(), self._relations[0])

    def get_etype_id(self, etype: Optional[Etype]) -> int:
        self._relation(etype)
        return 0


class EdgeTypedView(TypedView):
    """Columns of several relations; they may be written by the relation's name."""

    def __setitem__(self, key: str, value: Dict[Any, Tensor]) -> None:
        if isinstance(value, dict):
            known: List[CanonicalEtype] = list(self._views)
            value = {canonical(kind, known): tensor for kind, tensor in value.items()}
        super().__setitem__(key, value)
