"""Layers that add self loops, and normalization by degrees."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch_geometric.utils import get_laplacian, remove_self_loops

from sar.autograd.compile import uncompiled
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_index.rows import check_size, lift
from sar.graph.edge_tensor.tensor import values
from sar.graph.readout import max_over_workers


@uncompiled
def gcn_norm(
    original: Any,
    edge_index: Any,
    edge_weight: Optional[Tensor] = None,
    num_nodes: Optional[int] = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: Optional[torch.dtype] = None,
) -> Any:
    """Without weights, the normalization is a product of one number of the source and one of the destination."""
    if not isinstance(edge_index, SplitEdgeIndex) or edge_weight is not None:
        return original(edge_index, edge_weight, num_nodes, improved, add_self_loops, flow, dtype)
    check_size(edge_index.end(1), num_nodes)
    edges = edge_index.edges
    if add_self_loops:
        edges = edges.without_loops().with_loops(any_order=True)
    edge_index = edge_index.of(edges)
    source, target = edge_index
    counted = target if flow == "source_to_target" else source
    degrees = edges.relation.degrees(out=counted.side == "u").to(dtype or torch.get_default_dtype())
    norm = degrees.pow(-0.5)
    norm.masked_fill_(norm == float("inf"), 0.0)
    return edge_index, lift(norm, 0, source) * lift(norm, 0, target)


def in_any_order(edge_index: Any, edge_attr: Optional[Tensor] = None) -> Any:
    """An edge index for a layer that adds self loops, and has no tensors of edges but those that it is given: where
    each node has one, no other graph is made."""
    return edge_index.in_any_order() if isinstance(edge_index, SplitEdgeIndex) and edge_attr is None else edge_index


def loops_added(original: Any, layer: Any, x: Any, edge_index: Any) -> Tensor:
    """The forward of a layer that adds self loops."""
    return original(layer, x, in_any_order(edge_index))


def cheb_conv(
    original: Any,
    layer: Any,
    x: Tensor,
    edge_index: Any,
    edge_weight: Optional[Tensor] = None,
    batch: Optional[Tensor] = None,
    lambda_max: Optional[Tensor] = None,
) -> Tensor:
    """Where the largest eigenvalue is not given, PyG takes twice the largest weight; here, of the weights of all
    workers. Collective."""
    if lambda_max is None:
        _, weight = get_laplacian(*remove_self_loops(edge_index, edge_weight), layer.normalization, x.dtype, x.shape[0])
        lambda_max = 2.0 * max_over_workers(values(weight)).squeeze(0)
    return original(layer, x, edge_index, edge_weight, batch, lambda_max)
