"""Relational graph convolution (Schlichtkrull et al., 2018)."""

from __future__ import annotations

import math
from abc import ABCMeta
from typing import TYPE_CHECKING, Callable, Dict, Optional, Sequence, Union

import torch
from torch import Tensor, nn

from sar.graph.udf.batches import EdgeBatch

from ._propagate import Graph, built_in, first_rows

REGULARIZERS = (None, "basis", "bdd")


class TypedLinear(nn.Module):
    """A linear layer per type: ``y[e] = x[e] W[type of e]``.

    Arguments, parameters and results are those of ``dgl.nn.TypedLinear``.

    :param in_size: width of the input
    :param out_size: width of the output
    :param num_types: types; W is ``[num_types, in_size, out_size]``
    :param regularizer: ``None``; ``"basis"``: W is a combination of ``num_bases`` matrices; ``"bdd"``: W is block
        diagonal with ``num_bases`` blocks
    :param num_bases: matrices or blocks
    :raises ValueError: another regularizer, no ``num_bases``, or one that does not divide both widths
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        num_types: int,
        regularizer: Optional[str] = None,
        num_bases: Optional[int] = None,
    ) -> None:
        super().__init__()
        if regularizer not in REGULARIZERS:
            raise ValueError(f"TypedLinear: regularizer {regularizer!r} is unknown; give 'basis', 'bdd' or None")
        self.in_size, self.out_size, self.num_types = in_size, out_size, num_types
        self.regularizer = regularizer
        self.num_bases = bases = num_bases or 0
        fan = in_size
        if regularizer is None:
            self.W = nn.Parameter(torch.empty(num_types, in_size, out_size))
        elif not bases:
            raise ValueError(f"TypedLinear: regularizer {regularizer!r} needs num_bases")
        elif regularizer == "basis":
            self.W = nn.Parameter(torch.empty(bases, in_size, out_size))
            self.coeff = nn.Parameter(torch.empty(num_types, bases))
        else:
            if in_size % bases or out_size % bases:
                raise ValueError(f"TypedLinear: {bases} blocks do not divide the widths {in_size} and {out_size}")
            fan = in_size // bases
            self.W = nn.Parameter(torch.empty(num_types, bases * fan * (out_size // bases)))
        self.bound = 1 / math.sqrt(fan) if fan else 0.0
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initializes weights as ``torch.nn.Linear`` does, and coefficients Xavier-uniform."""
        nn.init.uniform_(self.W, -self.bound, self.bound)
        if self.regularizer == "basis":
            nn.init.xavier_uniform_(self.coeff, gain=nn.init.calculate_gain("relu"))

    def get_weight(self) -> Tensor:
        """``[num_types, in_size, out_size]``; for ``"bdd"`` the blocks, ``[num_types, num_bases * in * out]``."""
        if self.regularizer != "basis":
            return self.W
        return (self.coeff @ self.W.flatten(1)).view(self.num_types, self.in_size, self.out_size)

    def forward(self, x: Tensor, x_type: Tensor, sorted_by_type: bool = False) -> Tensor:
        """One matrix product per type.

        :param x: ``[n, in_size]``
        :param x_type: integers ``[n]``, 0 .. num_types - 1
        :param sorted_by_type: a hint, which is checked
        :returns: ``[n, out_size]``
        :raises ValueError: a type outside 0 .. num_types - 1, or shapes that do not fit
        """
        if x.dim() != 2 or x.shape[1] != self.in_size or x_type.shape != x.shape[:1]:
            raise ValueError(
                f"TypedLinear: x {tuple(x.shape)} and x_type {tuple(x_type.shape)}; expected (n, {self.in_size}), (n,)"
            )
        low, high = (int(x_type.min()), int(x_type.max())) if x.shape[0] else (0, 0)
        if low < 0 or high >= self.num_types:
            raise ValueError(f"TypedLinear: types {low} .. {high}; the layer knows 0 .. {self.num_types - 1}")
        ordered = x_type.numel() < 2 or bool((x_type[1:] >= x_type[:-1]).all())
        order = None if ordered else torch.argsort(x_type, stable=True)
        rows = x if order is None else x[order]
        counts = torch.bincount(x_type, minlength=self.num_types).tolist()
        weight = self.get_weight()
        out = torch.cat([self._one(piece, w) for piece, w in zip(rows.split(counts), weight)])
        if order is None:
            return out
        return torch.empty_like(out).index_copy(0, order, out)

    if TYPE_CHECKING:
        __call__ = forward

    def _one(self, x: Tensor, weight: Tensor) -> Tensor:
        """``x W`` for the rows of one type."""
        if self.regularizer != "bdd":
            return x @ weight
        blocks = weight.view(self.num_bases, self.in_size // self.num_bases, self.out_size // self.num_bases)
        pieces = x.view(x.shape[0], *blocks.shape[:2])
        return torch.einsum("nbi,bio->nbo", pieces, blocks).reshape(x.shape[0], self.out_size)

    def extra_repr(self) -> str:
        return (
            f"in_size={self.in_size}, out_size={self.out_size}, num_types={self.num_types}, "
            f"regularizer={self.regularizer}, num_bases={self.num_bases or None}"
        )


class RelGraphConv(nn.Module, metaclass=ABCMeta):
    """``out[i] = x[i] W_0 + b + sum over in-edges (j -> i) of norm[ji] * x[j] W[type of ji]``.

    For a graph whose edge types are a tensor; for one with several relations see :class:`HeteroGraphConv`. Messages
    are computed in blocks of edges of bounded size, in forward and again in backward. Arguments, parameters and
    results are those of ``dgl.nn.RelGraphConv``, so state dicts fit either; on DGL's own graphs it computes the same.

    :param in_feat: width of the input
    :param out_feat: width of the output
    :param num_rels: edge types
    :param regularizer: of W, as in :class:`TypedLinear`
    :param num_bases: by default as many as edge types
    :param bias: learn b, ``[out_feat]``
    :param activation: applied to the result
    :param self_loop: learn W_0, ``[in_feat, out_feat]``
    :param dropout: applied last
    :param layer_norm: normalize before b is added
    """

    def __init__(
        self,
        in_feat: int,
        out_feat: int,
        num_rels: int,
        regularizer: Optional[str] = None,
        num_bases: Optional[int] = None,
        bias: bool = True,
        activation: Optional[Callable[[Tensor], Tensor]] = None,
        self_loop: bool = True,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        if regularizer is not None and num_bases is None:
            num_bases = num_rels
        self.linear_r = TypedLinear(in_feat, out_feat, num_rels, regularizer, num_bases)
        self.activation = activation
        self.h_bias = nn.Parameter(torch.zeros(out_feat)) if bias else None
        self.layer_norm_weight = nn.LayerNorm(out_feat) if layer_norm else None
        self.loop_weight: Optional[nn.Parameter] = None
        if self_loop:
            self.loop_weight = nn.Parameter(torch.empty(in_feat, out_feat))
            nn.init.xavier_uniform_(self.loop_weight, gain=nn.init.calculate_gain("relu"))
        self.dropout = nn.Dropout(dropout)

    def message(self, edges: EdgeBatch) -> Dict[str, Tensor]:
        """``norm * x W[type]`` for a block of edges."""
        m = self.linear_r(edges.src["_x"], edges.data["_type"])
        if "_norm" in edges.data:
            m = m * edges.data["_norm"].view(-1, 1)
        return {"_m": m}

    def forward(
        self,
        g: Graph,
        feat: Tensor,
        etypes: Union[Tensor, Sequence[int]],
        norm: Optional[Tensor] = None,
        *,
        presorted: bool = False,
    ) -> Tensor:
        """Collective in forward and backward.

        :param g: a graph manager or block of one relation, or a graph of DGL
        :param feat: ``[num_src, in_feat]``; the destinations are the first rows
        :param etypes: integers ``[num_edges]`` in ascending order of edge ids, or the number of edges of each type
        :param norm: factors, ``[num_edges]`` or ``[num_edges, 1]``
        :param presorted: taken as a hint; blocks look for themselves
        :returns: ``[num_dst, out_feat]``
        :raises ValueError: an unknown type, or shapes that do not fit
        """
        if not isinstance(etypes, Tensor):
            etypes = torch.repeat_interleave(torch.arange(len(etypes)), torch.tensor(list(etypes)))
        with g.local_scope():
            g.srcdata["_x"] = feat
            g.edata["_type"] = etypes
            if norm is not None:
                g.edata["_norm"] = norm
            g.update_all(self.message, built_in(g).sum("_m", "_out"))
            out: Tensor = g.dstdata["_out"]
        if self.layer_norm_weight is not None:
            out = self.layer_norm_weight(out)
        if self.h_bias is not None:
            out = out + self.h_bias
        if self.loop_weight is not None:
            out = out + first_rows(feat, g.num_dst_nodes()) @ self.loop_weight
        if self.activation is not None:
            out = self.activation(out)
        dropped: Tensor = self.dropout(out)
        return dropped

    if TYPE_CHECKING:
        __call__ = forward
