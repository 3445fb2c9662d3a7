"""GAT layers in one piece: DGL's, those of ``sar.nn`` and PyG's.

``out[i, h] = sum over in-edges (j -> i) of a[ji, h] * W[h] x[j]``, with ``a`` the softmax over the in-edges of i of
``leaky_relu(attn_l[h] . W[h] x[j] + attn_r[h] . W[h] x[i])``, and dropout of it.

Of the tensors of the size of the result, only the sum is saved for backward; W x is recomputed from x, which may itself
be recomputed (:mod:`.recompute`). There are two nodes of autograd: the product with the scores, and the sum over edges.
Backward of the first begins when the result and its gradient are released.

The libraries differ in how they round (:class:`Rounding`). A worker whose layer has a hook runs the library's steps,
gets the same numbers and sends the same. :mod:`.gat_columns` computes the layers in less memory.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Any, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import columns
from sar.autograd import expression as ex, program, recomputed
from sar.autograd.autocast import autocast_state, product_dtype
from sar.autograd.compile import uncompiled
from sar.autograd.double_backward import differentiable_once
from sar.autograd.types import Relation
from sar.distributed.agreement import agreed_seed, anywhere
from sar.graph.manager import GraphShardManager

from . import costs, gat_columns, low_memory
from .deferred import computed
from .eligibility import fits_alone, gat_unfit, note_choice
from .prepared import constant_of
from .recompute import Held, Saved, rows_of, save
from .row_blocks import Factor, multiply, products, slices, sums

if TYPE_CHECKING:
    from .constant import Constant


class Rounding(enum.Enum):
    """How scores are computed, and in which order edges read their operands.

    ``FOLDED``: scores are ``x . (W[h]' attn[h])``, so neither pass multiplies all features with the attention vectors.
    ``PYG``: scores are sums over ``attn[h] * W[h] x``, and all sums are rounded in the order in which PyG's steps and
    autograd add.
    """

    FOLDED = "folded"
    PYG = "pyg"


@uncompiled
def convolve(
    graph: Any,
    layer: Any,
    feat: Any,
    edge_weight: Any,
    get_attention: bool,
    slope: float,
    dropout_p: float,
    *,
    merge: Optional[str] = None,
    memory_efficient: bool = False,
) -> Optional[Tensor]:
    """The fused result of a GATConv, of DGL or of ``sar.nn``; None if the layer has to run its own steps, because it
    does not have exactly one linear map or because something reads the attention. ``slope`` is that of leaky_relu,
    ``dropout_p`` the share of the attention that is set to 0; ``merge`` as in :func:`gat_columns.merged`;
    ``memory_efficient``: by :mod:`.gat_columns`, and alike on all workers. Neither is read from the layer: attributes
    of such names that a user gave to DGL's are the user's."""
    feat, vectors = computed(feat), (layer.attn_l, layer.attn_r)
    plain = edge_weight is None and not get_attention and layer.res_fc is None
    fused = plain and gat_unfit(layer) is None and fits_alone(graph, feat, layer.fc.weight, layer.fc.in_features)
    by_columns, needs = memory_efficient and isinstance(graph, GraphShardManager), False
    if by_columns:
        tensors = feat, layer.fc.weight, *vectors, layer.bias
        mine = torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)
        unfit, needs = anywhere(not fused, mine)
        fused = not unfit
    elif plain and low_memory.active():
        fused = low_memory.all_fit(fused)
    if not note_choice(layer, graph, fused):
        return None
    relation, x, weight, bias = graph._relation(None), layer.feat_drop(feat), layer.fc.weight, layer.bias
    if not by_columns and not (low_memory.active() and dropout_p == 0):
        out = attend(relation, x, weight, *vectors, slope, dropout_p, constant=constant_of(layer))
        return finish(layer, _with_bias(out, bias), merge)
    _, heads, each = layer.attn_l.shape
    step = costs.columns(x.shape[1], heads, each, merge) if by_columns else low_memory.columns(x.shape[1], len(weight))
    attention = gat_columns.Attention(relation, slope, dropout_p, step)
    inside = by_columns and gat_columns.elementwise(layer.activation)  # on this rank; messages do not depend on it
    if inside:
        attention = attention._replace(activation=layer.activation, merge=merge)
    out = gat_columns.attend(attention, x, weight, *vectors, bias, needs)
    return out if inside else finish(layer, out, merge)


def finish(layer: Any, out: Tensor, merge: Optional[str]) -> Tensor:
    """What follows the heads ``[..., h, d]``: the layer's activation, and how heads are merged."""
    return gat_columns.merged(out if layer.activation is None else layer.activation(out), merge)


@uncompiled
def attend(
    relation: Relation,
    x: Tensor,
    weight: Tensor,
    attn_l: Tensor,
    attn_r: Tensor,
    slope: float,
    dropout_p: float,
    rounding: Rounding = Rounding.FOLDED,
    constant: Optional[Constant] = None,
) -> Tensor:
    """Collective in forward and backward.

    :param x: ``[n, i]``, of sources, which are the destinations too
    :param weight: ``[heads * each, i]``
    :param attn_l: of sources, ``[1, heads, each]``, and ``attn_r`` of destinations
    :param slope: of leaky_relu
    :param dropout_p: of the attention that is set to 0
    :param rounding: with ``FOLDED`` under autocast, sums are rounded to the type of products
    :param constant: what is kept of the rows of earlier calls
    :returns: ``[n, heads, each]``, which backward needs as it is
    """
    x, dtype = x.contiguous(), product_dtype(x, weight)
    factor = None if constant is None else constant.sparse(x)
    ft, el, er = _Scores.apply(x, weight, attn_l, attn_r, rounding, save(x, len(weight)), factor, dtype)
    if ft.requires_grad:
        recomputed.note(ft, functools.partial(_product, ft.grad_fn))
    factors = gat_columns.factors(el, er, slope, dropout_p, agreed_seed() if dropout_p > 0 else 0)
    rows = ex.load("u", ft)
    message = ex.binary("mul", *((factors, rows) if rounding is Rounding.PYG else (rows, factors)))
    rounds = autocast_state().on and rounding is Rounding.FOLDED
    return program.run(relation, message, "sum", dtype if rounds else None)


def _read(ctx: Any) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    """x, W, the vectors of the scores, and W x where it was computed again."""
    if ctx.read is None:
        *rows_saved, weight, attn = ctx.saved_tensors  # once: torch.utils.checkpoint allows no more
        ctx.read = rows_of(Saved(*rows_saved), ctx.held), weight, attn, None
    found: Tuple[Tensor, Tensor, Tensor, Optional[Tensor]] = ctx.read
    return found


def _product(ctx: Any) -> Tensor:
    """W x, ``[n, heads, each]``, computed again. The gradients of PyG's scores need it too, so it stays until then."""
    x, weight, attn, ft = _read(ctx)
    if ft is None:
        (ft,) = products(x, weight, factor=ctx.factor, at_once=ctx.needs_input_grad[0])
        ft = ft.view(len(x), *attn.shape[1:])
        if ctx.rounding is Rounding.PYG:
            ctx.read = x, weight, attn, ft
    return ft


class _Scores(torch.autograd.Function):
    """``W x``, and the scores of sources and of destinations, ``[n, heads, 1]`` each."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        attn_l: Tensor,
        attn_r: Tensor,
        rounding: Rounding,
        saved: Tuple[Saved, Optional[Held]],
        factor: Optional[Factor],
        dtype: torch.dtype,
    ) -> Tuple[Tensor, Tensor, Tensor]:
        for_x, for_w, for_l, for_r, *_ = ctx.needs_input_grad
        ctx.dtypes = x.dtype, weight.dtype
        attn, weight = torch.cat([attn_l, attn_r]), weight.to(dtype)
        shape = len(x), *attn.shape[1:]
        if dtype == torch.bfloat16:  # products of x with folded weights would be rounded twice
            rounding = Rounding.PYG
        weights = [weight] if rounding is Rounding.PYG else [gat_columns.folded(weight, attn), weight]
        # a constant x may lie in a file
        *folded, ft = products(x, *weights, factor=factor, at_once=for_x)
        ft = ft.view(shape)
        if folded:
            el, er = (s.contiguous().unsqueeze(-1) for s in folded[0].view(len(x), 2, attn.shape[1]).unbind(1))
        else:
            el, er = (torch.cat([(ft[at] * v).sum(-1, keepdim=True) for at in slices(ft)]) for v in attn)
        wanted = {ft: for_x or for_w, el: for_x or for_w or for_l, er: for_x or for_w or for_r}
        ctx.mark_non_differentiable(*(t for t, wants in wanted.items() if not wants))
        rows_saved, ctx.held = saved
        ctx.save_for_backward(*rows_saved, weight, attn)
        ctx.set_materialize_grads(False)
        ctx.read, ctx.rounding, ctx.factor = None, rounding, factor
        return ft, el, er

    @staticmethod
    @differentiable_once("GATConv")
    def backward(
        ctx: Any, grad_ft: Optional[Tensor], grad_el: Optional[Tensor], grad_er: Optional[Tensor]
    ) -> Tuple[Optional[Tensor], ...]:
        _, _, for_l, for_r, *_ = ctx.needs_input_grad
        back = _back_as_pyg if ctx.rounding is Rounding.PYG else _back
        grad_x, grad_w, of_l, of_r = back(ctx, grad_ft, grad_el, grad_er)
        grad_x, grad_w = (g if g is None else g.to(d) for g, d in zip((grad_x, grad_w), ctx.dtypes))
        return grad_x, grad_w, of_l if for_l else None, of_r if for_r else None, None, None, None, None


def _with_bias(out: Tensor, bias: Optional[Tensor]) -> Tensor:
    """A new tensor, since backward needs the sum, and scripts may change the result in place."""
    if bias is None:
        return out.clone()
    bias = bias.view(out.shape[1:])
    result: Tensor = out + bias if out.dtype == bias.dtype else _Biased.apply(out, bias)
    return result


class _Biased(torch.autograd.Function):
    """``out + bias`` in the type of ``out``, which is narrower, without a tensor of its size in that of the bias."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, bias: Tensor) -> Tensor:
        ctx.dtype, result = bias.dtype, torch.empty_like(out)
        for at in slices(out):
            torch.add(out[at], bias, out=result[at])
        return result

    @staticmethod
    @differentiable_once("GATConv")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        if not ctx.needs_input_grad[1]:
            return grad, None
        return grad, columns.totals(grad.flatten(1)).to(ctx.dtype).view(grad.shape[1:])


Gradients = Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]
"""Of x, W and the vectors of the scores."""


def _back(ctx: Any, grad_ft: Optional[Tensor], grad_el: Optional[Tensor], grad_er: Optional[Tensor]) -> Gradients:
    x, weight, attn, _ = _read(ctx)
    ctx.read = None
    for_x, for_w, *_ = ctx.needs_input_grad
    none = x.new_zeros(len(x), attn.shape[1], 1)
    of_scores = torch.cat([none if g is None else g for g in (grad_el, grad_er)], 1).flatten(1)
    grad_ft = None if grad_ft is None else grad_ft.flatten(1)
    factors = [of_scores, grad_ft] if for_w and grad_ft is not None else [of_scores]
    of_folded, *of_ft = sums(x, *factors, factor=ctx.factor, at_once=for_x)
    del x  # before the gradient of it is made
    of_folded = of_folded.view(2, attn.shape[1], -1)
    grad_x = grad_w = None
    if of_ft:
        grad_w = of_ft[0]
        grad_w += torch.einsum("shd,shi->hdi", attn, of_folded).flatten(0, 1)
    if for_x and grad_ft is not None:
        grad_x = multiply(grad_ft, weight)
        grad_x.addmm_(of_scores, gat_columns.folded(weight, attn))
    of_attn = torch.einsum("hdi,shi->shd", weight.view(*attn.shape[1:], -1), of_folded)
    return grad_x, grad_w, of_attn[:1], of_attn[1:]


def _back_as_pyg(
    ctx: Any, grad_ft: Optional[Tensor], grad_el: Optional[Tensor], grad_er: Optional[Tensor]
) -> Gradients:
    ft = _product(ctx)
    x, weight, attn, _ = _read(ctx)
    ctx.read = None
    for_x, for_w, for_l, for_r, *_ = ctx.needs_input_grad
    if grad_ft is not None:  # nobody else has it
        for at in slices(grad_ft):
            for grad, vectors in ((grad_er, attn[1]), (grad_el, attn[0])):  # autograd begins with the last steps
                if grad is not None:
                    grad_ft[at] += grad[at] * vectors
    of_r = _of_vectors(grad_er, ft) if for_r and grad_er is not None else None
    of_l = _of_vectors(grad_el, ft, out=ft) if for_l and grad_el is not None else None
    del ft
    grad_x = grad_w = None
    if grad_ft is not None:
        grad_ft = grad_ft.flatten(1)
        if for_w:
            (grad_w,) = sums(x, grad_ft, factor=ctx.factor, at_once=for_x)
        del x
        grad_x = multiply(grad_ft, weight) if for_x else None
    return grad_x, grad_w, of_l, of_r


def _of_vectors(grad: Tensor, ft: Tensor, out: Optional[Tensor] = None) -> Tensor:
    """The gradient of the vectors of one side, ``[1, heads, each]``, from that of its scores. ``out``: where products
    may go."""
    if grad.dtype == ft.dtype:
        return torch.mul(grad, ft, out=out).sum(0, keepdim=True)
    # wider than the rows: some rows at a time
    return torch.stack([(grad[at] * ft[at]).sum(0, keepdim=True) for at in slices(ft)]).sum(0)
