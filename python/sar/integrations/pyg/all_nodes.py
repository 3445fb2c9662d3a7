"""Layers that look at all nodes of a graph: WLConv numbers their colours, GPSConv attends to each."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import abi, session as _session
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_index.rows import lift
from sar.graph.node_batch import NodeBatch
from sar.graph.readout import rows_of_all

from .over_nodes import node_batch

__all__ = ["METHODS", "OVER_NODES"]


@torch.no_grad()
def _wl_conv(original: Any, layer: Any, x: Tensor, edge_index: Any) -> Tensor:
    """PyG numbers colours as it meets them. Here they are met in the order of ranks, and every worker has the table."""
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(layer, x, edge_index)
    if edge_index.flipped:
        raise NotImplementedError("WLConv looks at the in-edges of nodes: give it the edge index that is not flipped")
    if x.dim() > 1:
        assert (x.sum(dim=-1) == 1).sum() == x.size(0)
        x = x.argmax(dim=-1)
    assert x.dtype == torch.long
    colours = lift(x, 0, edge_index.end(0))
    rows = edge_index.end(1).numbers()
    order = colours.argsort()
    order = order[rows[order].argsort(stable=True)]
    degrees = torch.bincount(rows, minlength=len(x)).tolist()
    found = [hash((own, *others.tolist())) for own, others in zip(x.tolist(), colours[order].split(degrees))]
    fresh = [key for key in dict.fromkeys(found) if key not in layer.hashmap]
    for key in rows_of_all(torch.tensor(fresh, dtype=torch.long)).tolist():
        layer.hashmap.setdefault(key, len(layer.hashmap))
    return torch.tensor([layer.hashmap[key] for key in found], dtype=torch.long)


def _wl_histogram(original: Any, layer: Any, x: Tensor, batch: Optional[Tensor] = None, norm: bool = False) -> Tensor:
    """Counts the colours of the nodes of all workers. Collective."""
    found = node_batch("WLConv.histogram", x, 0, batch)
    if found is None:
        return original(layer, x, batch, norm)
    colours = len(layer.hashmap)
    out = torch.bincount(found.as_subclass(Tensor) * colours + x, minlength=colours * found.graphs)
    _session.all_reduce(out, "sum", abi.TRAIN)
    out = out.view(found.graphs, colours)
    return torch.nn.functional.normalize(out.float(), dim=-1, eps=0) if norm else out


def _gps_conv(
    original: Any, layer: Any, x: Tensor, edge_index: Any, batch: Optional[Tensor] = None, **kwargs: Any
) -> Tensor:
    """Own nodes attend to the nodes of all workers, whose rows are gathered: N rows, and own x N weights a head."""
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(layer, x, edge_index, batch, **kwargs)
    attention, kind = layer.attn, type(layer.attn)
    if not issubclass(kind, torch.nn.MultiheadAttention):
        raise NotImplementedError(
            f"GPSConv on a graph split over workers has no {kind.__name__}: use attn_type='multihead'"
        )
    graphs = node_batch("GPSConv", x, 0, batch)
    if graphs is None:  # one worker has all nodes
        return original(layer, x, edge_index, batch, **kwargs)

    def attend(query: Tensor, key: Tensor, value: Tensor, **how: Any) -> Tuple[Tensor, None]:
        everyone = rows_of_all(query.squeeze(0)).unsqueeze(0)
        own = graphs.as_subclass(Tensor)
        apart = None if graphs.graphs == 1 else own.unsqueeze(1) != rows_of_all(own)
        if not len(own):  # torch divides by the number of queries
            return query + 0 * everyone.sum(), None
        made, _ = kind.forward(attention, query, everyone, everyone, attn_mask=apart, need_weights=False)
        return made, None

    attention.forward = attend
    try:
        return original(layer, x, edge_index, None if batch is None else graphs, **kwargs)
    finally:
        del attention.forward


def _to_dense_batch(original: Any, x: Tensor, batch: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Own nodes as one graph in GPSConv, which then attend to those of all workers."""
    if not isinstance(batch, NodeBatch):
        return original(x, batch, *args, **kwargs)
    return x.unsqueeze(0), torch.ones(1, len(x), dtype=torch.bool)


METHODS: Dict[str, Callable[..., Any]] = {
    "nn.WLConv.forward": _wl_conv,
    "nn.GPSConv.forward": _gps_conv,
    "nn.conv.gps_conv.to_dense_batch": _to_dense_batch,
}
"""Methods of torch_geometric, each replaced by a function of the original and its arguments."""
OVER_NODES: Dict[str, Callable[..., Any]] = {"nn.WLConv.histogram": _wl_histogram}
"""Likewise; no argument tells whether the graph is split."""
