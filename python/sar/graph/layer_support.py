"""Methods and attributes that layers of DGL use besides message passing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Union, overload

import torch
from torch import Tensor

from sar._engine import abi, session as _session

from .degrees import agree_on_degrees
from .queries import GraphQueries, edge_ends
from .refused import REFUSED, refusal
from .relation import NativeGraph, Relation
from .subgraph import Subgraphs, edges_from
from .types import Etype

if TYPE_CHECKING:
    from typing_extensions import Self


class LayerSupport(Subgraphs):
    """What a graph manager inherits so that DGL's layers find what they look for."""

    @overload
    def formats(self, formats: None = None) -> Dict[str, List[str]]: ...
    @overload
    def formats(self, formats: Union[str, Sequence[str]]) -> Self: ...
    def formats(self, formats: Union[None, str, Sequence[str]] = None) -> Union[Dict[str, List[str]], Self]:
        """In-edges by destination, in the engine: ``{"created": ["csc"], "not created": []}``, as DGL has it. Asked for
        formats, the graph itself."""
        return {"created": ["csc"], "not created": []} if formats is None else self

    def create_formats_(self) -> None:
        """Nothing: the engine has what it needs."""

    def add_self_loop(self, fill_data: float = 1.0) -> Self:
        """A new graph with one more edge for each node, from it to itself, behind the others. Collective.

        :param fill_data: what the new edges have in ``edata``
        :raises ValueError: a block, or a graph of several types
        """
        return self._looped(fill_data, {})

    def add_edges(
        self, u: Tensor, v: Tensor, data: Optional[Mapping[str, Tensor]] = None, etype: Optional[Etype] = None
    ) -> None:
        """Adds an edge from each own node to itself, in place, which is what ``dgl.add_self_loop`` asks for.
        Collective.

        :param u: all own nodes in order
        :param v: likewise
        :param data: columns of the new edges, ``[own nodes, ...]``; others are 0
        :raises sar.WholeGraphError: other edges
        """
        nodes = torch.arange(self.num_dst_nodes())
        if not all(isinstance(ends, Tensor) and torch.equal(ends, nodes) for ends in (u, v)):
            raise refusal("graph.add_edges", REFUSED["add_edges"])
        made = self._looped(0.0, data or {})
        self._state, self._relations = made._state, made._relations

    def _looped(self, fill: float, data: Mapping[str, Tensor]) -> Self:
        """With self loops, whose columns are given or filled."""
        _check(self)
        made = self.clone()
        state, relation = made._state, self._relations[0]
        kind = relation.canonical[0]
        first = state.nodes[kind].first
        nodes = torch.arange(self.num_dst_nodes()) + first
        columns, dst = edge_ends(relation)
        src = torch.cat([self.column_nodes()[columns], nodes])
        starts = torch.tensor(state.nodes[kind].starts, dtype=torch.int64)
        ends = src, torch.cat([dst + first, nodes])
        native = NativeGraph(abi.graph_from_edges(_session.current().handle, starts, *ends))
        looped = Relation(native, 0, relation.canonical)
        agree_on_degrees([looped])
        node_keys = state.node_keys.get(kind, lambda: nodes)

        def column(values: Tensor, name: str) -> Tensor:
            own = data.get(name)
            filled = values.new_full((len(nodes), *values.shape[1:]), fill) if own is None else own
            return torch.cat([values, filled])

        def keys(of_edges: Tensor, name: str) -> Tensor:  # those of the nodes are below all ids of edges
            return torch.cat([of_edges.long(), -1 - node_keys().long()])

        edges = edges_from(looped, relation, state.edge_frames[relation.canonical], column, keys)
        made._state = state.with_relations([looped], {looped.canonical: edges})
        made._relations = [looped]
        return made

    def remove_self_loop(self) -> Self:
        """A new graph without the edges from a node to itself. Collective.

        :raises ValueError: a block, or a graph of several types
        """
        _check(self)
        made = self.clone()
        relation = self._relations[0]
        columns, dst = edge_ends(relation)  # own source rows are the first columns
        made.keep_edges({relation.canonical: columns != dst})
        return made


def _check(graph: GraphQueries) -> None:
    if not graph.is_homogeneous or not graph.src_is_tgt:
        raise ValueError("self loops are added to and removed from full graphs of one node type and one relation")
