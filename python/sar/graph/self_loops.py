"""Adds and removes self loops."""

from __future__ import annotations

from typing import Any, Callable, Optional, cast

import torch
from torch import Tensor

from sar._engine import abi, session as _session

from .degrees import agree_on_degrees
from .frames import EdgeFrame
from .queries import edge_ends
from .relation import NativeGraph, Relation
from .subgraph import edge_column
from .types import AnyGraph, Graph

__all__ = ["with_self_loops", "without_self_loops"]


def with_self_loops(graph: AnyGraph, fill: float = 1.0) -> AnyGraph:
    """A new graph with one more edge for each node, from it to itself, behind the others. Collective.

    :param fill: what the new edges have in columns of edges
    :raises ValueError: a block, or a graph of several types
    """
    _check(graph)
    made: Any = graph.clone()
    state, relation = made._state, graph._relations[0]
    kind = relation.canonical[0]
    first = state.nodes[kind].first
    nodes = torch.arange(graph.num_dst_nodes()) + first
    columns, dst = edge_ends(relation)
    src = torch.cat([graph.column_nodes()[columns], nodes])
    starts = torch.tensor(state.nodes[kind].starts, dtype=torch.int64)
    ends = src, torch.cat([dst + first, nodes])
    native = NativeGraph(abi.graph_from_edges(_session.current().handle, starts, *ends))
    looped = Relation(native, 0, relation.canonical)
    agree_on_degrees([looped])
    looped.edge_keys = _keys(relation, state.node_keys.get(kind, lambda: nodes))

    def column(values: Tensor) -> Tensor:
        return torch.cat([values, values.new_full((len(nodes), *values.shape[1:]), fill)])

    edges, old = EdgeFrame(relation.canonical[1], looped.num_edges), state.edge_frames[relation.canonical]
    for key in old:
        edges.later(key, edge_column(old, key, column))
    made._state = state.with_relations([looped], {looped.canonical: edges})
    made._relations = [looped]
    return cast(AnyGraph, made)


def _keys(relation: Relation, node_keys: Callable[[], Tensor]) -> Optional[Callable[[], Tensor]]:
    """What dropout knows the edges by: the others as before, a new one by its node, below all ids of edges."""
    keys = relation.edge_keys
    if keys is None:
        return None
    return lambda: torch.cat([(keys if isinstance(keys, Tensor) else keys()).long(), -1 - node_keys().long()])


def without_self_loops(graph: AnyGraph) -> AnyGraph:
    """A new graph without the edges from a node to itself. Collective.

    :raises ValueError: a block, or a graph of several types
    """
    _check(graph)
    made: Any = graph.clone()
    relation = graph._relations[0]
    columns, dst = edge_ends(relation)  # own source rows are the first columns
    made.keep_edges({relation.canonical: columns != dst})
    return cast(AnyGraph, made)


def _check(graph: Graph) -> None:
    if not graph.is_homogeneous or not graph.src_is_tgt:
        raise ValueError("self loops are added to and removed from full graphs of one node type and one relation")
