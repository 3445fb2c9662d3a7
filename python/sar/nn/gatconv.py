"""Graph attention networks (Veličković et al., 2018; Brody, Alon and Yahav, 2022).

Attention is an expression that is computed edge block by edge block: nothing of the size of the edges is held, in
forward or in backward, unless the attention itself is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, Tuple, Union, overload

import torch
from torch import Tensor, nn

from sar.autograd import expression as ex
from sar.autograd.autocast import lowered
from sar.autograd.fused import gat
from sar.distributed.agreement import agreed_seed

from ._propagate import Features, Graph, edge_factor, first_rows, refuse_zero_in_degree, sizes

Activation = Callable[[Tensor], Tensor]
Result = Union[Tensor, Tuple[Tensor, Tensor]]


class _Attention(nn.Module):
    """What both layers share: widths, flags, residual connection, and the weighted sum."""

    res_fc: Optional[nn.Module]

    def __init__(
        self,
        in_feats: Union[int, Tuple[int, int]],
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = False,
        activation: Optional[Activation] = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.src_feats, self.dst_feats = sizes(in_feats)
        self.out_feats, self.num_heads = out_feats, num_heads
        self.negative_slope, self.activation = negative_slope, activation
        self.allow_zero_in_degree = allow_zero_in_degree
        self.feat_drop = nn.Dropout(feat_drop)
        self.attn_drop = attn_drop
        self.res_fc = None
        if residual:
            width = num_heads * out_feats
            self.res_fc = nn.Identity() if self.dst_feats == width else nn.Linear(self.dst_feats, width, bias=bias)
        self._make(isinstance(in_feats, tuple), bias)
        self.reset_parameters()

    def _make(self, pair: bool, bias: bool) -> None:
        """Makes the layer's own parameters; ``pair``: destinations have features of their own."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        raise NotImplementedError

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Changes the flag of that name."""
        self.allow_zero_in_degree = set_value

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.num_heads, self.out_feats)

    def _weigh(
        self, graph: Any, logits: ex.Expr, values: ex.Expr, edge_weight: Optional[Tensor]
    ) -> Tuple[Tensor, ex.Expr]:
        """``sum over in-edges of dropout(softmax(logits)) * edge_weight * values``, and those factors."""
        factors = ex.softmax(logits)
        if self.training and self.attn_drop > 0:
            factors = ex.dropout(factors, self.attn_drop, agreed_seed())
        if edge_weight is not None:
            factors = ex.binary("mul", factors, ex.load("e", edge_factor(edge_weight, len(logits.shape))))
        out = ex.evaluate(graph._relation(None), ex.binary("mul", values, factors), "sum")
        return out, factors

    @staticmethod
    def _result(graph: Any, out: Tensor, factors: ex.Expr, get_attention: bool) -> Result:
        return (out, ex.evaluate(graph._relation(None), factors, None)) if get_attention else out

    def extra_repr(self) -> str:
        return f"{self.src_feats}, {self.out_feats}, num_heads={self.num_heads}, attn_drop={self.attn_drop}"


class GATConv(_Attention):
    """``out[i, h] = b[h] + sum over in-edges (j -> i) of a[ji, h] * W[h] x[j]``, with attention ``a`` the softmax over
    the in-edges of i of ``leaky_relu(attn_l[h] . W[h] x[j] + attn_r[h] . W[h] x[i])``.

    Arguments, parameters and results are those of ``dgl.nn.GATConv``, so state dicts fit either.

    :param in_feats: width of the input, or a pair: of sources and of destinations, which then have a W each
    :param out_feats: width of each head
    :param num_heads: heads, h
    :param feat_drop: dropout of the input
    :param attn_drop: dropout of the attention, drawn by edge: the same for any number of workers
    :param negative_slope: of leaky_relu
    :param residual: add the input, through a linear layer where widths differ
    :param activation: applied to the result
    :param allow_zero_in_degree: nodes without in-edges get b in place of an error
    :param bias: learn b, ``[num_heads * out_feats]``
    :param merge: what happens with the heads of the result, after the activation: ``None``: nothing; ``"flatten"``:
        they are put side by side, as by ``.flatten(1)``; ``"mean"``: averaged, as by ``.mean(1)``
    :param memory_efficient: compute the result by blocks of columns, and save only the input for backward. The same
        gradients, for one message pass more in backward. Gains most with ``merge``, and with an activation that works
        element by element and is computed with the blocks (ReLU, LeakyReLU, ELU, SELU, GELU, SiLU, sigmoid, tanh, as
        functions or modules); others are applied to the whole result. The same on all workers. Has no effect on blocks,
        on graphs of DGL, with edge_weight or get_attention, and where a hook is registered for ``fc`` on any worker
    :raises ValueError: another merge, or ``memory_efficient`` with a residual connection or a pair of inputs
    """

    def __init__(
        self,
        in_feats: Union[int, Tuple[int, int]],
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = False,
        activation: Optional[Activation] = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
        *,
        merge: Optional[str] = None,
        memory_efficient: bool = False,
    ) -> None:
        if merge not in (None, "flatten", "mean"):
            raise ValueError(f"GATConv: merge={merge!r} is unknown; give None, 'flatten' or 'mean'")
        if memory_efficient and (residual or isinstance(in_feats, tuple)):
            raise ValueError(
                "GATConv: memory_efficient=True takes one input and no residual connection: give one width as "
                "in_feats, and add the input to the result outside of the layer"
            )
        super().__init__(
            in_feats,
            out_feats,
            num_heads,
            feat_drop,
            attn_drop,
            negative_slope,
            residual,
            activation,
            allow_zero_in_degree,
            bias,
        )
        self.merge, self.memory_efficient = merge, memory_efficient

    def _make(self, pair: bool, bias: bool) -> None:
        width = self.num_heads * self.out_feats
        self.shared = not pair
        if self.shared:
            self.fc = nn.Linear(self.src_feats, width, bias=False)
        else:
            self.fc_src = nn.Linear(self.src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self.dst_feats, width, bias=False)
        self.attn_l = nn.Parameter(torch.empty(1, self.num_heads, self.out_feats))
        self.attn_r = nn.Parameter(torch.empty(1, self.num_heads, self.out_feats))
        # a linear layer in the residual connection has the bias already
        own_bias = bias and not isinstance(self.res_fc, nn.Linear)
        self.bias = nn.Parameter(torch.empty(width)) if own_bias else None

    def reset_parameters(self) -> None:
        """Xavier-normal weights, zero biases."""
        gain = nn.init.calculate_gain("relu")
        layers = [self.fc] if self.shared else [self.fc_src, self.fc_dst]
        layers += [self.res_fc] if isinstance(self.res_fc, nn.Linear) else []
        for weight in (*(layer.weight for layer in layers), self.attn_l, self.attn_r):
            nn.init.xavier_normal_(weight, gain=gain)
        for bias in (self.bias, layers[-1].bias):
            if bias is not None:
                nn.init.zeros_(bias)

    @overload
    def forward(
        self,
        graph: Graph,
        feat: Features,
        edge_weight: Optional[Tensor] = None,
        get_attention: Literal[False] = False,
    ) -> Tensor: ...
    @overload
    def forward(
        self, graph: Graph, feat: Features, edge_weight: Optional[Tensor] = None, *, get_attention: Literal[True]
    ) -> Tuple[Tensor, Tensor]: ...
    def forward(
        self, graph: Graph, feat: Features, edge_weight: Optional[Tensor] = None, get_attention: bool = False
    ) -> Result:
        """Collective in forward and backward.

        :param graph: a graph manager or block of one relation
        :param feat: ``[num_src, ..., in_feats]``, or a pair of source and destination features
        :param edge_weight: factors of the attention, ``[num_edges]``
        :param get_attention: also return the attention, which is of the size of the edges; then all workers must
        :returns: ``[num_dst, ..., num_heads, out_feats]``; with ``get_attention`` also
            ``[num_edges, ..., num_heads, 1]``. With ``merge`` the result is ``[num_dst, ..., num_heads * out_feats]``
            or ``[num_dst, ..., out_feats]``
        :raises ValueError: a node without in-edges, or shapes that do not fit
        """
        if not self.allow_zero_in_degree:
            refuse_zero_in_degree(graph, self)
        dropout_p = self.attn_drop if self.training else 0.0
        found = gat.convolve(
            graph,
            self,
            feat,
            edge_weight,
            get_attention,
            self.negative_slope,
            dropout_p,
            merge=self.merge,
            memory_efficient=self.memory_efficient,
        )
        if found is not None:
            return found
        if isinstance(feat, tuple):
            x, own = self.feat_drop(feat[0]), self.feat_drop(feat[1])
            source, target = (self.fc, self.fc) if self.shared else (self.fc_src, self.fc_dst)
            ft, ft_own = self._heads(source(x)), self._heads(target(own))
        else:
            n = graph.num_dst_nodes()
            x = self.feat_drop(feat)
            ft = self._heads(self.fc(x))
            own, ft_own = first_rows(x, n), first_rows(ft, n)
        left = ex.load("u", (ft * self.attn_l).sum(-1, keepdim=True))
        right = ex.load("v", (ft_own * self.attn_r).sum(-1, keepdim=True))
        logits = ex.unary("leaky_relu", ex.binary("add", left, right), self.negative_slope)
        out, factors = self._weigh(graph, logits, ex.load("u", ft), edge_weight)
        if self.res_fc is not None:
            out = out + self._heads(self.res_fc(own))
        if self.bias is not None:
            out = out + self.bias.view(self.num_heads, self.out_feats)
        return self._result(graph, lowered(gat.finish(self, out, self.merge)), factors, get_attention)

    if TYPE_CHECKING:
        __call__ = forward


class GATv2Conv(_Attention):
    """``out[i, h] = sum over in-edges (j -> i) of a[ji, h] * W_src[h] x[j]``, with attention ``a`` the softmax over the
    in-edges of i of ``attn[h] . leaky_relu(W_src[h] x[j] + W_dst[h] x[i])``.

    Arguments, parameters and results are those of ``dgl.nn.GATv2Conv``, so state dicts fit either; as for
    :class:`GATConv` otherwise.

    :param bias: W_src and W_dst have a bias
    :param share_weights: one W for both sides
    """

    def __init__(
        self,
        in_feats: Union[int, Tuple[int, int]],
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = False,
        activation: Optional[Activation] = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
        share_weights: bool = False,
    ) -> None:
        self.share_weights = share_weights and not isinstance(in_feats, tuple)  # before parameters are made
        super().__init__(
            in_feats,
            out_feats,
            num_heads,
            feat_drop,
            attn_drop,
            negative_slope,
            residual,
            activation,
            allow_zero_in_degree,
            bias,
        )

    def _make(self, pair: bool, bias: bool) -> None:
        width = self.num_heads * self.out_feats
        self.fc_src = nn.Linear(self.src_feats, width, bias=bias)
        self.fc_dst = self.fc_src if self.share_weights else nn.Linear(self.dst_feats, width, bias=bias)
        self.attn = nn.Parameter(torch.empty(1, self.num_heads, self.out_feats))

    def reset_parameters(self) -> None:
        """Xavier-normal weights, zero biases."""
        gain = nn.init.calculate_gain("relu")
        nn.init.xavier_normal_(self.attn, gain=gain)
        for layer in (self.fc_src, self.fc_dst, self.res_fc):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, gain=gain)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    @overload
    def forward(self, graph: Graph, feat: Features, get_attention: Literal[False] = False) -> Tensor: ...
    @overload
    def forward(self, graph: Graph, feat: Features, get_attention: Literal[True]) -> Tuple[Tensor, Tensor]: ...
    def forward(self, graph: Graph, feat: Features, get_attention: bool = False) -> Result:
        """Collective in forward and backward.

        :param graph: a graph manager or block of one relation
        :param feat: ``[num_src, in_feats]``, or a pair of source and destination features
        :param get_attention: also return the attention, which is of the size of the edges; then all workers must
        :returns: ``[num_dst, num_heads, out_feats]``; with ``get_attention`` also ``[num_edges, num_heads, 1]``
        :raises ValueError: a node without in-edges, or shapes that do not fit
        """
        if not self.allow_zero_in_degree:
            refuse_zero_in_degree(graph, self)
        if isinstance(feat, tuple):
            x, own = self.feat_drop(feat[0]), self.feat_drop(feat[1])
            ft, ft_own = self._heads(self.fc_src(x)), self._heads(self.fc_dst(own))
        else:
            n = graph.num_dst_nodes()
            x = self.feat_drop(feat)
            ft, own = self._heads(self.fc_src(x)), first_rows(x, n)
            ft_own = first_rows(ft, n) if self.share_weights else self._heads(self.fc_dst(own))
        values = ex.load("u", ft)
        hidden = ex.unary("leaky_relu", ex.binary("add", values, ex.load("v", ft_own)), self.negative_slope)
        logits = ex.total(ex.binary("mul", hidden, ex.param(self.attn[0])), -1, keepdim=True)
        out, factors = self._weigh(graph, logits, values, None)
        if self.res_fc is not None:
            out = out + self._heads(self.res_fc(own))
        out = out if self.activation is None else self.activation(out)
        return self._result(graph, out, factors, get_attention)

    if TYPE_CHECKING:
        __call__ = forward
