"""Typed calls into the engine: blocks, and graphs of several types from memory."""

from __future__ import annotations

import ctypes as ct
import json
from typing import List, Sequence, Tuple

import torch
from torch import Tensor

from . import library
from .abi import _array, _handle, _ref


def graph_from_relations(
    session: int,
    node_types: Sequence[str],
    edge_types: Sequence[Tuple[str, str, str]],
    node_counts: Tensor,
    edges: Sequence[Tuple[Tensor, Tensor]],
) -> int:
    out = ct.c_uint64()
    types = json.dumps({"node_types": list(node_types), "edge_types": [list(t) for t in edge_types]}).encode()
    src, dst = (_array([pair[side] for pair in edges]) if edges else None for side in (0, 1))
    library.call(
        "sar_graph_from_relations",
        _handle(session),
        types,
        _ref(node_counts),
        src,
        dst,
        ct.c_int32(len(edges)),
        ct.byref(out),
    )
    return out.value


def graph_block(graph: int, seeds: Sequence[Tensor], keep_seeds: bool) -> int:
    """``seeds``: own rows of each node type, int64."""
    out = ct.c_uint64()
    start = torch.tensor([0, *(len(s) for s in seeds)]).cumsum(0)
    rows = torch.cat([s.to(torch.int64) for s in seeds])
    library.call(
        "sar_graph_block", _handle(graph), _ref(rows), _ref(start), ct.c_int32(1 if keep_seeds else 0), ct.byref(out)
    )
    return out.value


def block_rows(block: int, node_types: int, dst: bool) -> List[Tensor]:
    """Per node type, the own rows of the full graph that are source or destination rows of the block."""
    side = ct.c_int32(1 if dst else 0)
    counts = torch.empty(node_types, dtype=torch.int64)
    library.call("sar_graph_block_counts", _handle(block), side, _ref(counts))
    found = []
    for kind, count in enumerate(counts.tolist()):
        rows = torch.empty(count, dtype=torch.int64)
        library.call("sar_graph_block_rows", _handle(block), ct.c_int32(kind), side, _ref(rows))
        found.append(rows)
    return found


def block_edges(block: int, relation: int, num_edges: int) -> Tensor:
    """Positions of a block's edges in the order of the full graph's edge tensors."""
    out = torch.empty(num_edges, dtype=torch.int64)
    library.call("sar_graph_block_edges", _handle(block), ct.c_int32(relation), _ref(out))
    return out


def send_rows(graph: int, relation: int, peer: int, count: int) -> Tensor:
    """Own source rows that a peer reads."""
    out = torch.empty(count, dtype=torch.int64)
    library.call("sar_graph_send_rows", _handle(graph), ct.c_int32(relation), ct.c_int32(peer), _ref(out))
    return out
