"""Self loops of the edge index of a split graph."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from sar.graph.edge_index.edges import SplitEdges
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_tensor.tensor import values

from .reductions import check_edges, check_size

__all__ = [
    "ANY_ORDER",
    "add_remaining_self_loops",
    "add_self_loops",
    "add_self_loops_in_any_order",
    "contains_self_loops",
    "remove_self_loops",
]

ANY_ORDER: Tuple[str, ...] = ("gat_conv", "gatv2_conv", "supergat_conv", "agnn_conv", "feast_conv")
"""Layers that add self loops to edges of which they have no other tensors."""


def remove_self_loops(original: Any, edge_index: Any, edge_attr: Optional[Tensor] = None) -> Any:
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, edge_attr)
    edges = edge_index.edges
    check_edges(edges, edge_attr)
    if edge_attr is not None and not edges.loops().none:
        edge_attr = values(edge_attr)[_no_loop(edges)]
    return edge_index.of(edges.without_loops()), edge_attr


def add_self_loops(
    original: Any,
    edge_index: Any,
    edge_attr: Optional[Tensor] = None,
    fill_value: Any = None,
    num_nodes: Any = None,
    any_order: bool = False,
) -> Any:
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, edge_attr, fill_value, num_nodes)
    size = min(num_nodes) if isinstance(num_nodes, (tuple, list)) else num_nodes
    check_size(edge_index.end(1), size)
    if edge_attr is not None:
        check_edges(edge_index.edges, edge_attr)
        return original(edge_index, values(edge_attr), fill_value, edge_index.edges.rows("v"))
    return edge_index.of(edge_index.edges.with_loops(any_order)), None


def add_self_loops_in_any_order(original: Any, edge_index: Any, *args: Any, **kwargs: Any) -> Any:
    """For layers that have no tensors of edges but those that they give with the edge index."""
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, *args, **kwargs)
    return add_self_loops(original, edge_index, *args, **{**kwargs, "any_order": True})


def add_remaining_self_loops(
    original: Any,
    edge_index: Any,
    edge_attr: Optional[Tensor] = None,
    fill_value: Any = None,
    num_nodes: Optional[int] = None,
) -> Any:
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, edge_attr, fill_value, num_nodes)
    edges = edge_index.edges
    check_size(edge_index.end(1), num_nodes)
    check_edges(edges, edge_attr)
    if edge_attr is not None:
        own = torch.stack([edges.numbers()[1]] * 2)
        own[0] = edges.numbers()[0]
        _, edge_attr = original(own, values(edge_attr), fill_value, edges.rows("v"))
    return edge_index.of(edges.without_loops().with_loops()), edge_attr


def contains_self_loops(original: Any, edge_index: Any) -> bool:
    if not isinstance(edge_index, SplitEdgeIndex):
        return bool(original(edge_index))
    return not edge_index.edges.loops().none


def _no_loop(edges: SplitEdges) -> Tensor:
    columns, rows = edges.numbers()
    return columns != rows
