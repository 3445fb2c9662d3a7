"""Graphs whose edges are pairs of nodes that a script names."""

from __future__ import annotations

from typing import Any, List, Tuple

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.graph.degrees import agree_on_degrees
from sar.graph.frames import EdgeFrame
from sar.graph.manager import GraphShardManager
from sar.graph.relation import Relation
from sar.graph.subgraph import first_ids, graph_of_sets

from .asked import owners


def graph_of(given: Any) -> GraphShardManager:
    """The graph manager, of one relation, that scripts name by itself, by an edge index or by a data object of PyG.

    :raises TypeError: nothing of a graph split over workers
    :raises ValueError: several relations
    """
    found = [store["edge_index"] for store in getattr(given, "edge_stores", ()) if "edge_index" in store]
    if len(found) > 1:
        raise ValueError("this data object has several relations: give the edge_index of one")
    graph = getattr(found[0] if found else given, "graph", given)
    if not isinstance(graph, GraphShardManager):
        raise TypeError(
            f"a {type(given).__name__} was given: a graph split over workers is wanted, as sar.load gives it, or an "
            "edge index of one"
        )
    if len(graph._relations) != 1:
        raise ValueError(f"this graph has several relations: give graph[relation], of {graph.canonical_etypes}")
    return graph


def graph_of_pairs(graph: GraphShardManager, sources: Tensor, rows: Tensor) -> GraphShardManager:
    """The same nodes with other edges, in the order given. Collective.

    :param graph: of one relation
    :param sources: the nodes that edges begin at, by their ids: int64 ``[n]``
    :param rows: own rows of the nodes that they end at
    """
    state, rank = graph._state, _session.current().rank
    canonical = graph._relations[0].canonical
    kinds: List[str] = list(state.nodes)
    counts = torch.tensor([state.nodes[kind].starts for kind in kinds], dtype=torch.int64).diff(dim=1)
    source, target = kinds.index(canonical[0]), kinds.index(canonical[2])
    starts = first_ids(counts)
    owner, row = owners(counts[source], sources)
    ends: Tuple[Tensor, Tensor] = (
        (starts[source][owner] + row).contiguous(),
        (starts[target, rank] + rows).contiguous(),
    )
    relation = Relation(graph_of_sets(counts, [(source, target, *ends)]), 0, canonical)
    agree_on_degrees([relation])
    made = graph.clone()
    made._state = state.with_relations([relation], {canonical: EdgeFrame(canonical[1], relation.num_edges)})
    made._relations = [relation]
    return made
