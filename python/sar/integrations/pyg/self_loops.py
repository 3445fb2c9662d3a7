"""Self loops of the edge index of a split graph."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from torch import Tensor

from sar.graph.edge_index.rows import check_size
from sar.graph.edge_tensor.tensor import values

__all__ = ["ANY_ORDER", "add_self_loops_in_any_order"]

ANY_ORDER: Tuple[str, ...] = ("gat_conv", "gatv2_conv", "supergat_conv", "agnn_conv", "feast_conv")
"""Layers that add self loops to edges of which they have no other tensors."""


def add_self_loops_in_any_order(
    original: Any,
    edge_index: Any,
    edge_attr: Optional[Tensor] = None,
    fill_value: Any = None,
    num_nodes: Any = None,
) -> Any:
    """For layers that have no tensors of edges but those that they give with the edge index."""
    if edge_attr is not None:
        return original(edge_index, values(edge_attr), fill_value, num_nodes)
    check_size(edge_index.end(1), min(num_nodes) if isinstance(num_nodes, (tuple, list)) else num_nodes)
    return edge_index.of(edge_index.edges.with_loops(any_order=True)), None
