"""Graph isomorphism network (Xu, Hu, Leskovec and Jegelka, 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional

import torch
from torch import Tensor, nn

from ._propagate import Features, Graph, as_pair, propagate

REDUCERS = ("sum", "max", "mean")


class GINConv(nn.Module):
    """``out[i] = f((1 + eps) * x[i] + reduce over in-edges (j -> i) of w[ji] * x[j])``.

    Arguments, parameters and results are those of ``dgl.nn.GINConv``, so state dicts fit either.

    :param apply_func: f, for instance a small network; none: the identity
    :param aggregator_type: ``"sum"``, ``"max"`` or ``"mean"``
    :param init_eps: eps at the start
    :param learn_eps: learn eps, ``[1]``
    :param activation: applied to the result
    :raises ValueError: another aggregator
    """

    eps: Tensor

    def __init__(
        self,
        apply_func: Optional[Callable[[Tensor], Tensor]] = None,
        aggregator_type: str = "sum",
        init_eps: float = 0,
        learn_eps: bool = False,
        activation: Optional[Callable[[Tensor], Tensor]] = None,
    ) -> None:
        super().__init__()
        if aggregator_type not in REDUCERS:
            raise ValueError(f"GINConv: aggregator {aggregator_type!r} is unknown; give one of {REDUCERS}")
        self.apply_func, self.aggregator_type, self.activation = apply_func, aggregator_type, activation
        start = torch.tensor([float(init_eps)])
        if learn_eps:
            self.eps = nn.Parameter(start)
        else:
            self.register_buffer("eps", start)

    def forward(self, graph: Graph, feat: Features, edge_weight: Optional[Tensor] = None) -> Tensor:
        """Collective in forward and backward.

        :param graph: a graph manager or block
        :param feat: ``[num_src, d]``, or a pair of source and destination features
        :param edge_weight: w, ``[num_edges]`` or ``[num_edges, 1]``
        :returns: ``[num_dst, width of f]``
        :raises ValueError: shapes that do not fit
        """
        x, own = as_pair(graph, feat)
        out = (1 + self.eps) * own + propagate(graph, x, self.aggregator_type, edge_weight)
        if self.apply_func is not None:
            out = self.apply_func(out)
        return out if self.activation is None else self.activation(out)

    if TYPE_CHECKING:
        __call__ = forward
