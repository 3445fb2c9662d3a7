"""Shared parts of the layers: pairs of features, the check for zero in-degrees, one aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Tuple, Union

import torch
from torch import Tensor

from sar import function as fn
from sar.graph.degrees import has_zero_in_degree

if TYPE_CHECKING:
    from sar.graph.block import DistributedBlock
    from sar.graph.manager import GraphShardManager
    from sar.graph.reversed import ReversedGraph
    from sar.integrations.types import DGLGraph

Graph = Union["GraphShardManager", "DistributedBlock", "ReversedGraph", "DGLGraph"]
"""What layers run on."""
Features = Union[Tensor, Tuple[Tensor, Tensor]]
"""Features of sources and destinations; one tensor stands for both, the destinations being its first rows."""


def as_pair(graph: Any, feat: Features) -> Tuple[Tensor, Tensor]:
    """Features of sources ``[num_src, ...]`` and of destinations ``[num_dst, ...]``."""
    if isinstance(feat, tuple):
        return feat
    return feat, first_rows(feat, graph.num_dst_nodes())


def first_rows(x: Tensor, n: int) -> Tensor:
    """The first n rows. All of them are the tensor itself: the gradient of a slice is a tensor of zeros and a copy."""
    return x if x.shape[0] == n else x[:n]


def built_in(graph: Any) -> Any:
    """The built-in functions that a graph knows: :mod:`sar.function`, or ``dgl.function`` for a graph of DGL."""
    if hasattr(graph, "_relations"):
        return fn
    from sar.integrations.dgl import fallback as dgl_fallback

    return dgl_fallback.functions


def sizes(in_feats: Union[int, Tuple[int, int]]) -> Tuple[int, int]:
    """Widths of source and destination features."""
    return (in_feats[0], in_feats[1]) if isinstance(in_feats, tuple) else (in_feats, in_feats)


def refuse_zero_in_degree(graph: Any, layer: torch.nn.Module) -> None:
    """Raises ValueError where a node of any worker has no in-edge: its output would say nothing about it."""
    if has_zero_in_degree(graph):  # on any worker, so all raise
        lonely = int((graph.in_degrees() == 0).sum())
        raise ValueError(
            f"{type(layer).__name__}: some nodes have no in-edge ({lonely} of this worker's), so nothing "
            "arrives at them. Give every node an edge to itself (`sar partition --self-loops`, dgl.add_self_loop), or "
            "make the layer with allow_zero_in_degree=True"
        )


def propagate(
    graph: Any, x: Tensor, reduce: Union[str, Callable[[Any], Any]] = "sum", edge_weight: Optional[Tensor] = None
) -> Tensor:
    """``out[i] = reduce over in-edges (j -> i) of x[j] (* edge_weight[ji])``. Collective.

    :param x: ``[num_src, ...]``, float32 or float64
    :param reduce: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``; or what makes ``_out`` of the mailbox ``_m``
    :param edge_weight: ``[num_edges, ...]``; feature dimensions are aligned with those of x from the right
    :returns: ``[num_dst, ...]``; rows without edges are 0
    """
    with graph.local_scope():
        graph.srcdata["_x"] = x
        functions = built_in(graph)
        message: Any = functions.copy_u("_x", "_m")
        if edge_weight is not None:
            graph.edata["_w"] = edge_weight
            message = functions.u_mul_e("_x", "_w", "_m")
        graph.update_all(message, getattr(functions, reduce)("_m", "_out") if isinstance(reduce, str) else reduce)
        out: Tensor = graph.dstdata["_out"]
    return out


def degree_scale(degrees: Tensor, like: Tensor, power: float) -> Tensor:
    """``max(degree, 1) ** power`` in the dtype of ``like``, shaped to multiply its rows."""
    scale = degrees.to(like.dtype).clamp(min=1).pow(power)
    return scale.view(-1, *(1,) * (like.dim() - 1))


def edge_factor(edge_weight: Tensor, dims: int) -> Tensor:
    """One number per edge, ``[num_edges]``, shaped to multiply messages of ``dims`` feature dimensions."""
    return edge_weight.view(-1, *(1,) * dims)
