"""Propagation without parameters: APPNP, and the inputs of SIGN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Tuple

import torch
from torch import Tensor, nn

from sar.autograd import expression as ex
from sar.autograd.transpose import sum_to_sources
from sar.distributed.agreement import agreed_seed

from ._propagate import Graph, degree_scale, edge_factor, propagate

OPERATORS = ("raw", "rw", "gcn", "ppr")


class APPNPConv(nn.Module):
    """Personalized PageRank of the features (Klicpera, Bojchevski and Günnemann, 2019).

    ``x[0] = feat``; ``x[t + 1] = (1 - alpha) * D_in^-1/2 A D_out^-1/2 x[t] + alpha * x[0]``; the result is ``x[k]``.
    Degrees count the edges of all workers. Arguments and results are those of ``dgl.nn.APPNPConv``.

    :param k: steps
    :param alpha: share of the start that every step puts back
    :param edge_drop: dropout of edges in training, drawn anew for every step
    """

    def __init__(self, k: int, alpha: float, edge_drop: float = 0.0) -> None:
        super().__init__()
        self.k, self.alpha, self.edge_drop = k, alpha, edge_drop

    def forward(self, graph: Graph, feat: Tensor, edge_weight: Optional[Tensor] = None) -> Tensor:
        """Collective in forward and backward.

        :param graph: a graph manager; sources and destinations are the same nodes
        :param feat: ``[num_nodes, ...]``
        :param edge_weight: entries of A, ``[num_edges]``, positive; degrees are then sums of weights
        :returns: ``[num_nodes, ...]``
        :raises ValueError: shapes that do not fit, or weights that are not positive
        """
        if edge_weight is None:
            before, after = (degree_scale(d, feat, -0.5) for d in (graph.out_degrees(), graph.in_degrees()))
        else:
            before, after = self._weighted(graph, feat, edge_weight)
        x = feat
        for _ in range(self.k):
            x = self._spread(graph, x * before, edge_weight) * after
            x = (1 - self.alpha) * x + self.alpha * feat
        return x

    if TYPE_CHECKING:
        __call__ = forward

    def _weighted(self, graph: Any, feat: Tensor, edge_weight: Tensor) -> Tuple[Tensor, Tensor]:
        """Factors of sources and of destinations where degrees are sums of weights."""
        if edge_weight.dim() != 1 or bool((edge_weight <= 0).any()):
            raise ValueError(f"APPNPConv: edge_weight {tuple(edge_weight.shape)} must be [num_edges] and positive")
        ones = edge_weight.new_ones(graph.num_src_nodes(), 1)
        arriving = propagate(graph, ones, "sum", edge_weight).view(-1)
        leaving = sum_to_sources(graph._relation(None), edge_weight.unsqueeze(1), None)
        return _inverse_root(leaving.view(-1), feat), _inverse_root(arriving, feat)

    def _spread(self, graph: Any, x: Tensor, edge_weight: Optional[Tensor]) -> Tensor:
        if not self.training or self.edge_drop == 0:
            return propagate(graph, x, "sum", None if edge_weight is None else edge_factor(edge_weight, x.dim() - 1))
        weight = ex.param(x.new_ones(())) if edge_weight is None else ex.load("e", edge_weight)
        dropped = ex.reshape(ex.dropout(weight, self.edge_drop, agreed_seed()), (1,) * (x.dim() - 1))
        return ex.evaluate(graph._relation(None), ex.binary("mul", ex.load("u", x), dropped), "sum")

    def extra_repr(self) -> str:
        return f"k={self.k}, alpha={self.alpha}, edge_drop={self.edge_drop}"


def sign_features(
    graph: Graph, feat: Tensor, k: int, operator: str = "gcn", alpha: float = 0.2, edge_weight: Optional[Tensor] = None
) -> List[Tensor]:
    """The inputs of SIGN (Rossi et al., 2020): ``[feat, B feat, B² feat, …, B^k feat]``. Collective; no gradients.

    They are computed once. After that, training uses no edges, and needs other workers only for ``gather_grads``.

    :param graph: a graph manager; sources and destinations are the same nodes
    :param feat: ``[num_nodes, ...]``, float32 or float64
    :param k: powers
    :param operator: B: ``"raw"`` the adjacency matrix A, ``"rw"`` D_in^-1 A, ``"gcn"`` D_in^-1/2 A D_out^-1/2,
        ``"ppr"`` the step of :class:`APPNPConv`
    :param alpha: of ``"ppr"``
    :param edge_weight: entries of A, ``[num_edges]``; not with ``"gcn"`` and ``"ppr"``, whose degrees count edges
    :returns: k + 1 tensors like ``feat``
    :raises ValueError: another operator, or weights with one that takes none
    """
    if operator not in OPERATORS:
        raise ValueError(f"sign_features: operator {operator!r} is unknown; give one of {OPERATORS}")
    if edge_weight is not None:
        if operator in ("gcn", "ppr"):
            raise ValueError(f"sign_features: {operator!r} takes no edge_weight; use 'raw' or 'rw'")
        edge_weight = edge_factor(edge_weight, feat.dim() - 1)
    powers = [feat.detach()]
    with torch.no_grad():
        for _ in range(k):
            x = powers[-1]
            if operator in ("raw", "rw"):
                powers.append(propagate(graph, x, "sum" if operator == "raw" else "mean", edge_weight))
                continue
            x = propagate(graph, x * degree_scale(graph.out_degrees(), x, -0.5))
            x = x * degree_scale(graph.in_degrees(), x, -0.5)
            powers.append(x if operator == "gcn" else (1 - alpha) * x + alpha * powers[0])
    return powers


def _inverse_root(sums: Tensor, like: Tensor) -> Tensor:
    """``sum ** -0.5``, 0 where there is nothing to add up, shaped to multiply the rows of ``like``."""
    safe = torch.where(sums > 0, sums, torch.ones_like(sums)).pow(-0.5)
    return torch.where(sums > 0, safe, torch.zeros_like(sums)).view(-1, *(1,) * (like.dim() - 1))
