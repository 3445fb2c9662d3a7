"""One-shot aggregation: fetches all boundary rows at once, then runs DGL on this worker alone.

It needs the memory that sequential aggregation saves. It serves for comparison, and for operations that only DGL has.
"""

from __future__ import annotations

import importlib.util
from collections import ChainMap
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, MutableMapping, Optional

import torch
from torch import Tensor

from sar._engine.log import log_once
from sar.autograd.fetch import fetch

from .frames import TypedView, check_rows
from .queries import GraphQueries, OneRelation, edge_ends, refuse_ndata
from .relation import Relation
from .state import GraphState
from .types import ALL, Edges, Etype

if TYPE_CHECKING:
    from .udf.batches import EdgeFunction, NodeFunction, ReduceFunction


def distributed_block(graph: GraphQueries) -> Any:
    """What :meth:`GraphShardManager.get_full_partition_graph` gives. Without DGL, the graph itself."""
    if importlib.util.find_spec("dgl") is None:
        log_once("one-shot", "without DGL, get_full_partition_graph gives the graph itself; the numbers are the same")
        return graph
    if len(graph._relations) == 1:
        return DistributedBlock(graph._state, graph._relations[0])
    return HeteroDistributedBlock(graph._state, graph._relations)


class DistributedBlock(OneRelation, GraphQueries):
    """One relation of a worker's part of a graph, as a DGL block whose source nodes are all columns: own source rows
    first, then the boundary rows of other workers.

    Setting a column of ``srcdata`` to local rows, ``[num_src_nodes(), ...]``, fetches the halo rows, which is
    collective; their gradients are returned in the same way. Everything else is DGL's: ``update_all``, ``apply_edges``,
    reducers written in Python. Counts, degrees and ``edges()`` are those of the graph it was made of.
    """

    is_block = True

    def __init__(self, state: GraphState, relation: Relation) -> None:
        from sar.integrations.dgl import graphs as dgl_graphs

        self._state, self._relations = state, [relation]
        self._block = dgl_graphs.block(edge_ends(relation), relation.num_columns, relation.num_dst, {})
        self._columns = state.edge_frames[relation.canonical]

    @property
    def srcdata(self) -> MutableMapping[str, Tensor]:
        """Columns of all source nodes; they are set to own rows alone."""
        return FetchingView(self._block, self._relations[0])

    @property
    def dstdata(self) -> MutableMapping[str, Tensor]:
        """Columns of own destination rows."""
        view: MutableMapping[str, Tensor] = self._block.dstdata
        return view

    @property
    def ndata(self) -> MutableMapping[str, Tensor]:
        """Columns of own nodes; setting one sets ``srcdata`` and ``dstdata``, so it is collective.

        :raises ValueError: in a block, and where the relation joins two types
        """
        refuse_ndata(self)
        if len(self.ntypes) > 1:
            raise ValueError(f"{' and '.join(self.ntypes)} are two sets of nodes: use srcdata or dstdata")
        return OwnView(self)

    @property
    def edata(self) -> MutableMapping[str, Tensor]:
        """Columns of in-edges, those of the graph it was made of included."""
        return ChainMap(self._block.edata, self._columns)

    def update_all(
        self,
        message_func: EdgeFunction,
        reduce_func: ReduceFunction,
        apply_node_func: Optional[NodeFunction] = None,
        etype: Optional[Etype] = None,
    ) -> None:
        """DGL's ``update_all``; local."""
        from sar.integrations.dgl import graphs as dgl_graphs

        self._bring(message_func)
        self._block.update_all(dgl_graphs.function(message_func), dgl_graphs.function(reduce_func), apply_node_func)

    def apply_edges(self, func: EdgeFunction, edges: Edges = ALL, etype: Optional[Etype] = None) -> None:
        """DGL's ``apply_edges``; local."""
        from sar.integrations.dgl import graphs as dgl_graphs

        self._bring(func)
        self._block.apply_edges(dgl_graphs.function(func), edges)

    def _bring(self, function: Any) -> None:
        """Reads the edge columns that a function may use, before DGL looks for them."""
        fields = {getattr(function, name, None) for name in ("in_field", "lhs_field", "rhs_field")} - {None}
        for key in self._columns:
            if (key in fields or not fields) and key not in self._block.edata:
                self._block.edata[key] = self._columns[key]

    def __getitem__(self, etype: Etype) -> DistributedBlock:
        self._relation(etype)
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "_block":  # not there yet
            raise AttributeError(name)
        return getattr(self._block, name)


class FetchingView(ChainMap[str, Tensor]):
    """``srcdata`` of a :class:`DistributedBlock`: local rows are written, local and halo rows are read."""

    def __init__(self, block: Any, relation: Relation) -> None:
        super().__init__(block.srcdata)
        self._relation = relation

    def __setitem__(self, key: str, value: Tensor) -> None:
        check_rows(f"srcdata[{key!r}]", value, self._relation.num_src, "source rows")
        columns = torch.arange(self._relation.num_columns)
        self.maps[0][key] = fetch(self._relation, columns, value)


class OwnView(ChainMap[str, Tensor]):
    """``ndata`` of a :class:`DistributedBlock` whose sources are its destinations."""

    def __init__(self, graph: DistributedBlock) -> None:
        super().__init__(graph.dstdata, graph.srcdata)
        self._num_src = graph._relations[0].num_src

    def __setitem__(self, key: str, value: Tensor) -> None:
        for side in reversed(self.maps):
            side[key] = value

    def __getitem__(self, key: str) -> Tensor:
        own, sources = self.maps
        if key not in own and key not in sources:
            raise KeyError(f"no ndata[{key!r}]; there are: {', '.join(sorted(self)) or 'none'}")
        return own[key] if key in own else sources[key][: self._num_src]

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        for side in self.maps:
            side.pop(key, None)


class HeteroDistributedBlock(GraphQueries):
    """A :class:`DistributedBlock` for each relation of a graph: ``block[etype]``.

    ``srcdata["h"] = {type: own rows}`` fetches for every relation that begins at the type; ``dstdata["h"]`` is
    ``{(source, relation, destination): rows}``, as each relation left them.
    """

    is_block = True

    def __init__(self, state: GraphState, relations: List[Relation]) -> None:
        self._state, self._relations = state, relations
        self._blocks = {r.canonical: DistributedBlock(state, r) for r in relations}

    def __getitem__(self, etype: Etype) -> DistributedBlock:
        return self._blocks[self._relation(etype).canonical]

    @property
    def srcdata(self) -> MutableMapping[str, Any]:
        """Columns of source rows by type."""
        return _Sources({triple: block.srcdata for triple, block in self._blocks.items()})

    @property
    def dstdata(self) -> MutableMapping[str, Any]:
        """Columns of destination rows by relation."""
        return TypedView({triple: block.dstdata for triple, block in self._blocks.items()})

    @contextmanager
    def local_scope(self) -> Iterator[None]:
        """Columns set inside are gone afterwards."""
        with ExitStack() as stack:
            for block in self._blocks.values():
                stack.enter_context(block.local_scope())
            yield

    def update_all(
        self,
        message_func: EdgeFunction,
        reduce_func: ReduceFunction,
        apply_node_func: Optional[NodeFunction] = None,
        etype: Optional[Etype] = None,
    ) -> None:
        """DGL's ``update_all`` on one relation; local."""
        self[self.to_canonical_etype(etype)].update_all(message_func, reduce_func, apply_node_func)

    def apply_edges(self, func: EdgeFunction, edges: Edges = ALL, etype: Optional[Etype] = None) -> None:
        """DGL's ``apply_edges`` on one relation; local."""
        self[self.to_canonical_etype(etype)].apply_edges(func, edges)


class _Sources(TypedView):
    """Columns of the sources of each relation; they are set by node type."""

    def __setitem__(self, key: str, value: Dict[Any, Tensor]) -> None:
        for triple, view in self._views.items():
            if triple[0] in value:
                view[key] = value[triple[0]]
