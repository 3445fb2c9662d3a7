"""A negative destination for the source of each edge."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.autograd.fetch import fetch
from sar.distributed.agreement import agreed_seed, summed
from sar.graph.edge_index.index import SplitEdgeIndex, edge_index
from sar.graph.edge_index.rows import EdgeEnds
from sar.graph.manager import GraphShardManager
from sar.graph.queries import edge_ends

from .draw import drawn
from .edges import graph_of
from .known import known
from .node_ids import NodeIds
from .originals import originals

_MOST = 1000
"""Draws for one edge, after which the graph is taken for one in which a node has edges to all."""


@uncompiled
def structured_negative_sampling(
    edges: Any, num_nodes: Optional[int], contains_neg_self_loops: bool, seed: Optional[int]
) -> Tuple[Union[EdgeEnds, Tensor], Union[EdgeEnds, Tensor], NodeIds]:
    """See :func:`sar.structured_negative_sampling`."""
    graph = graph_of(edges)
    relation = graph._relations[0]
    if relation.canonical[0] != relation.canonical[2]:
        raise ValueError("structured_negative_sampling: these edges lead from one node type to another")
    nodes = graph._state.nodes[relation.canonical[0]]
    ids, found = originals(graph._state, relation.canonical[0]), known(graph)
    of_columns = fetch(relation, torch.arange(relation.num_columns), ids.of_own(nodes))
    columns, rows = edge_ends(relation)
    sources = graph.column_nodes()[columns]
    keys = of_columns[columns] * nodes.num_global + of_columns[rows]  # own rows are the first columns
    chosen = torch.empty(len(columns), dtype=torch.int64)
    open_ = torch.arange(len(columns))
    first = agreed_seed(seed)
    for attempt in range(_MOST):
        if not summed(torch.tensor(len(open_))):
            index = edges if isinstance(edges, SplitEdgeIndex) else edge_index(graph)
            ends = graph.edges() if isinstance(edges, GraphShardManager) else tuple(index)
            return ends[0], ends[1], chosen.as_subclass(NodeIds)
        chosen[open_] = ids.nodes(drawn(nodes.num_global, first + attempt, keys[open_]))
        taken = found.asked(sources[open_], chosen[open_])
        if not contains_neg_self_loops:
            taken |= sources[open_] == chosen[open_]
        open_ = open_[taken]
    raise ValueError(
        f"structured_negative_sampling: {_MOST} draws found no negative node for some edges: their sources have edges "
        "to nearly all nodes"
    )
