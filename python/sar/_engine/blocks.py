"""Typed calls into the engine: blocks, and graphs of several types from memory."""

from __future__ import annotations

import json
from typing import List, Sequence, Tuple

import torch
from torch import Tensor

from . import library


def graph_from_relations(
    session: int,
    node_types: Sequence[str],
    edge_types: Sequence[Tuple[str, str, str]],
    node_counts: Tensor,
    edges: Sequence[Tuple[Tensor, Tensor]],
) -> int:
    types = json.dumps({"node_types": list(node_types), "edge_types": [list(t) for t in edge_types]})
    src, dst = ([pair[side] for pair in edges] for side in (0, 1))
    return library.call("sar_graph_from_relations", session, types, node_counts, src, dst, len(edges))


def graph_block(graph: int, seeds: Sequence[Tensor], keep_seeds: bool) -> int:
    """``seeds``: own rows of each node type, int64."""
    start = torch.tensor([0, *(len(s) for s in seeds)]).cumsum(0)
    rows = torch.cat([s.to(torch.int64) for s in seeds])
    return library.call("sar_graph_block", graph, rows, start, keep_seeds)


def block_rows(block: int, node_types: int, dst: bool) -> List[Tensor]:
    """Per node type, the own rows of the full graph that are source or destination rows of the block."""
    counts = torch.empty(node_types, dtype=torch.int64)
    library.call("sar_graph_block_counts", block, dst, counts)
    found = []
    for kind, count in enumerate(counts.tolist()):
        rows = torch.empty(count, dtype=torch.int64)
        library.call("sar_graph_block_rows", block, kind, dst, rows)
        found.append(rows)
    return found


def block_edges(block: int, relation: int, num_edges: int) -> Tensor:
    """Positions of a block's edges in the order of the full graph's edge tensors."""
    out = torch.empty(num_edges, dtype=torch.int64)
    library.call("sar_graph_block_edges", block, relation, out)
    return out


def send_rows(graph: int, relation: int, peer: int, count: int) -> Tensor:
    """Own source rows that a peer reads."""
    out = torch.empty(count, dtype=torch.int64)
    library.call("sar_graph_send_rows", graph, relation, peer, out)
    return out
