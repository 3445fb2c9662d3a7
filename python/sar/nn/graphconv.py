"""Graph convolution (Kipf and Welling, 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional

import torch
from torch import Tensor, nn

from ._propagate import Features, Graph, as_pair, degree_scale, propagate, refuse_zero_in_degree


class GraphConv(nn.Module):
    """``out[i] = b + sum over in-edges (j -> i) of w[ji] / c[ji] * x[j] W``.

    Arguments, parameters and results are those of ``dgl.nn.GraphConv``, so state dicts fit either.

    :param in_feats: width of the input
    :param out_feats: width of the output
    :param norm: c: ``"both"`` square root of out-degree of j times in-degree of i, ``"right"`` in-degree of i,
        ``"left"`` out-degree of j, ``"none"`` 1. Out-degrees count the edges of all workers
    :param weight: learn W, ``[in_feats, out_feats]``; without it ``forward`` may be given one
    :param bias: learn b, ``[out_feats]``
    :param activation: applied to the result
    :param allow_zero_in_degree: nodes without in-edges get b in place of an error
    :raises ValueError: another norm
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        norm: str = "both",
        weight: bool = True,
        bias: bool = True,
        activation: Optional[Callable[[Tensor], Tensor]] = None,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        if norm not in ("none", "both", "right", "left"):
            raise ValueError(f"GraphConv: norm {norm!r} is unknown; give 'none', 'both', 'right' or 'left'")
        self.in_feats, self.out_feats, self.norm = in_feats, out_feats, norm
        self.weight = nn.Parameter(torch.empty(in_feats, out_feats)) if weight else None
        self.bias = nn.Parameter(torch.empty(out_feats)) if bias else None
        self.activation = activation
        self.allow_zero_in_degree = allow_zero_in_degree
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform weights, zero bias."""
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Changes the flag of that name."""
        self.allow_zero_in_degree = set_value

    def forward(
        self, graph: Graph, feat: Features, weight: Optional[Tensor] = None, edge_weight: Optional[Tensor] = None
    ) -> Tensor:
        """Collective in forward and backward.

        :param graph: a graph manager or block
        :param feat: ``[num_src, ..., in_feats]``, or a pair of source and destination features
        :param weight: W, where the layer has none of its own
        :param edge_weight: w, ``[num_edges]`` or ``[num_edges, 1]``
        :returns: ``[num_dst, ..., out_feats]``
        :raises ValueError: a node without in-edges, two weights, or shapes that do not fit
        """
        if not self.allow_zero_in_degree:
            refuse_zero_in_degree(graph, self)
        if weight is None and edge_weight is None:
            from sar.autograd.fused.graph_conv import graph_conv

            found = graph_conv(graph, self, feat, self.norm)
            if found is not None:
                return found
        if weight is not None and self.weight is not None:
            raise ValueError("GraphConv: it has a weight of its own; make it with weight=False to give another")
        weight = self.weight if weight is None else weight
        x, _ = as_pair(graph, feat)
        if self.norm in ("left", "both"):
            x = x * degree_scale(graph.out_degrees(), x, -0.5 if self.norm == "both" else -1.0)
        narrow_first = weight is not None and self.in_feats > self.out_feats
        if weight is not None and narrow_first:
            x = x @ weight
        out = propagate(graph, x, "sum", edge_weight)
        if weight is not None and not narrow_first:
            out = out @ weight
        if self.norm in ("right", "both"):
            out = out * degree_scale(graph.in_degrees(), out, -0.5 if self.norm == "both" else -1.0)
        if self.bias is not None:
            out = out + self.bias
        return out if self.activation is None else self.activation(out)

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        return f"in={self.in_feats}, out={self.out_feats}, normalization={self.norm}"
