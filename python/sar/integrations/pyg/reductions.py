"""Sums, maxima and softmaxes by the ends of edges, and aggregations that want their messages in order."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from sar.autograd import expression
from sar.autograd.compile import uncompiled
from sar.distributed.agreement import largest_of_all
from sar.graph.edge_index.reduce import reduced
from sar.graph.edge_index.rows import EdgeEnds, check_size
from sar.graph.edge_tensor.over_sources import source_softmax
from sar.graph.edge_tensor.tensor import as_expr, values
from sar.graph.readout import NodeBatch, reduce_by_graph, softmax_by_graph
from sar.graph.refused import refusal

PADDED: Tuple[Any, ...] = tuple(
    getattr(aggr, name)
    for name in ("LSTMAggregation", "GRUAggregation", "SortAggregation", "LCMAggregation", "GraphMultisetTransformer")
    + ("SetTransformerAggregation", "PatchTransformerAggregation")
)
"""Aggregations that pad rows to the largest number of messages of a node."""
SORTED: Tuple[Any, ...] = (*PADDED, aggr.MLPAggregation, aggr.QuantileAggregation)
"""Aggregations that want their messages sorted by destination, or some at the first one."""

REDUCERS = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min"}


def scatter(
    original: Any, src: Tensor, index: Any, dim: int = 0, dim_size: Optional[int] = None, reduce: str = "sum"
) -> Tensor:
    if isinstance(index, NodeBatch):
        _check_graphs(index, dim_size)
        return reduce_by_graph(src, index, dim % src.dim(), REDUCERS.get(reduce, reduce))
    if not isinstance(index, EdgeEnds):
        return original(src, index, dim, dim_size, reduce)
    check_size(index, dim_size)
    if reduce not in REDUCERS:
        return original(values(src), _destinations(index), dim, index.edges.rows(index.side), reduce)
    return reduced(index.edges, index.side, src, dim % src.dim(), REDUCERS[reduce])


def softmax(
    original: Any,
    src: Tensor,
    index: Any = None,
    ptr: Optional[Tensor] = None,
    num_nodes: Optional[int] = None,
    dim: int = 0,
) -> Tensor:
    if isinstance(index, NodeBatch):
        _check_graphs(index, num_nodes)
        return softmax_by_graph(src, index, dim % src.dim())
    if not isinstance(index, EdgeEnds):
        return original(src, index, ptr, num_nodes, dim)
    check_size(index, num_nodes)
    if dim % src.dim():
        moved = softmax(original, values(src).movedim(dim, 0), index, ptr, num_nodes, 0)
        return values(moved).movedim(0, dim)
    return _softmax_at(index, src)


@uncompiled
def _softmax_at(index: EdgeEnds, src: Tensor) -> Tensor:
    edges = index.edges
    if index.side == "u":
        return source_softmax([edges.relation], [src])[0]
    return edges.tensor(expression.softmax(as_expr(src, "e")))


def _destinations(index: EdgeEnds) -> Tensor:
    """Rows of destinations, for functions that look at all edges of a node."""
    if index.side == "u":
        raise refusal(
            "this reduction over the out-edges of nodes",
            "those end on several workers, and sum, mean and softmax are computed; or give the graph with its edges "
            'reversed and flow="source_to_target"',
        )
    return index.numbers()


def _check_graphs(batch: NodeBatch, graphs: Optional[int]) -> None:
    if graphs is not None and graphs != batch.graphs:
        raise ValueError(f"a size of {graphs} graphs was given, and all workers together have {batch.graphs}")


def aggregate_messages(original: Any, module: Any, x: Tensor, index: EdgeEnds, *args: Any, **kwargs: Any) -> Tensor:
    """An aggregation of messages, which some take in the order of their destinations: those of a node in the order of
    edges."""
    if isinstance(module, aggr.EquilibriumAggregation):
        raise NotImplementedError(
            "EquilibriumAggregation on a graph split over workers would differentiate sums over its edges twice: use "
            "AttentionalAggregation, DeepSetsAggregation or SoftmaxAggregation"
        )
    if not isinstance(module, SORTED):
        return original(module, x, index, *args, **kwargs)
    dim = kwargs.get("dim", args[2] if len(args) > 2 else -2)
    rows, order = _destinations(index).sort(stable=True)
    x, own = values(x).index_select(dim, order), index.edges.rows("v")
    kwargs = {**kwargs, "ptr": None, "dim": dim}
    if isinstance(module, PADDED):
        kwargs["max_num_elements"] = _most_messages(index) + isinstance(module, aggr.PatchTransformerAggregation)
    if isinstance(module, aggr.MLPAggregation):  # it may have a batch norm over nodes
        return original(module, x, rows, **{**kwargs, "dim_size": own})
    # Two messages to one more node in front: quantiles fail where the first node has none, or where there is but one,
    # and torch's LSTM where there is no node.
    shape = list(x.shape)
    shape[dim] = 2
    x = torch.cat([x.new_zeros(shape), x], dim)
    rows = torch.cat([rows.new_zeros(2), rows + 1])
    return original(module, x, rows, **{**kwargs, "dim_size": own + 1}).narrow(dim, 1, own)


def _most_messages(index: EdgeEnds) -> int:
    """The largest number of edges that end at a node, of all workers: so long are PyG's padded rows. Collective."""
    degrees = index.edges.relation.degrees(out=False)
    return largest_of_all(max(1, int(degrees.max())) if len(degrees) else 1)
