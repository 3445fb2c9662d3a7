"""GAT layer computed by blocks of columns, for less memory.

Columns of a result of :mod:`sar.autograd.fused.gat` depend on the same columns of W x, and on the scores, which are
narrow. So a block of columns is computed from the input alone, and written to its place in the result. Between the
passes only the input and the parameters are saved. Backward recomputes block by block what autograd would have saved,
and adds each block's part to the gradients of input and parameters.

The same number of bytes travels as otherwise, besides the scores, in more and smaller exchanges; and backward runs
forward's once more. The blocks follow from the widths of the layer, so they are the same on all workers.

Where products run in bfloat16, scores, blocks of the result and what gradients add up to are float32. Each is rounded
once, when it is complete.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sar._engine.storage import computed_in
from sar.autograd import expression as ex
from sar.autograd.autocast import OFF, autocast_state, product_dtype, under
from sar.autograd.double_backward import differentiable_once
from sar.autograd.types import Relation, anchor
from sar.distributed.agreement import agreed_seed

from .costs import blocks_of_columns
from .eligibility import as_made
from .recompute import Held, Saved, rows_of, save
from .row_blocks import add_product, products, slices, sums

FUNCTIONS = frozenset(
    [torch.relu, torch.sigmoid, torch.tanh, F.relu, F.leaky_relu, F.elu, F.selu, F.gelu, F.silu, F.sigmoid, F.tanh]
)
"""Activations that work on each element by itself."""
_MODULES = (nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh)


class Attention(NamedTuple):
    """What a layer computes, besides its tensors: ``merge(activation(sum + b))`` with the sum of :mod:`.gat`.

    :ivar step: the most columns of a block
    :ivar activation: an :func:`elementwise` one
    :ivar merge: what happens with the heads; see :func:`merged`
    :ivar dtype: in which rows are multiplied
    :ivar result: the dtype of the result
    """

    relation: Relation
    slope: float
    dropout_p: float
    step: int = 0
    seed: int = 0
    activation: Optional[Callable[[Tensor], Tensor]] = None
    merge: Optional[str] = None
    dtype: torch.dtype = torch.float32
    result: torch.dtype = torch.float32


def elementwise(activation: Any) -> bool:
    """Whether an activation is known to work on each element by itself, without parameters."""
    return activation is None or activation in FUNCTIONS or any(as_made(activation, kind) for kind in _MODULES)


def merged(out: Tensor, merge: Optional[str]) -> Tensor:
    """Heads ``[..., h, d]`` as they are (None), ``"flatten"``: side by side ``[..., h * d]``, or ``"mean"``: averaged
    ``[..., d]``."""
    return out if merge is None else out.flatten(-2) if merge == "flatten" else out.mean(-2)


def attend(
    attention: Attention,
    x: Tensor,
    weight: Tensor,
    attn_l: Tensor,
    attn_r: Tensor,
    bias: Optional[Tensor],
    needs: bool,
) -> Tensor:
    """Collective in forward and backward.

    :param attention: without the seed
    :param x: ``[n, i]``
    :param weight: ``[heads * each, i]``
    :param attn_l: of sources, ``[1, heads, each]``, and ``attn_r`` of destinations
    :param bias: ``[heads * each]``
    :param needs: whether a tensor of any worker needs a gradient
    :returns: ``[n, heads, each]``, merged as ``attention.merge`` says
    """
    seed = agreed_seed() if attention.dropout_p > 0 else 0
    dtype = product_dtype(x, weight) or x.dtype
    result = dtype if autocast_state().on else torch.promote_types(dtype, attn_l.dtype)
    attention = attention._replace(seed=seed, dtype=dtype, result=result)
    x = x.contiguous()
    with under(OFF):
        if not needs:
            return forward(attention, x, weight, torch.cat([attn_l, attn_r]), bias)
        out: Tensor = _Attend.apply(anchor(), x, weight, attn_l, attn_r, bias, attention, save(x, len(weight)))
    return out


def folded(weight: Tensor, attn: Tensor) -> Tensor:
    """W' times the attention vectors of both sides, ``[2 * heads, i]``: the scores are its products with x."""
    return torch.einsum("shd,hdi->shi", attn, weight.view(*attn.shape[1:], -1)).flatten(0, 1)


def factors(el: Tensor, er: Tensor, slope: float, dropout_p: float, seed: int) -> ex.Expr:
    """``dropout(softmax(leaky_relu(el[j] + er[i])))`` for each edge j -> i."""
    scores = ex.binary("add", ex.load("u", el), ex.load("v", er))
    return ex.dropout(ex.softmax(ex.unary("leaky_relu", scores, slope)), dropout_p, seed)


def forward(attention: Attention, x: Tensor, weight: Tensor, attn: Tensor, bias: Optional[Tensor]) -> Tensor:
    """The result, without gradients. ``attn``: of both sides, ``[2, heads, each]``."""
    _, heads, each = attn.shape
    mean, scores = attention.merge == "mean", _scores(x, weight, attn)
    shape, weight = (attention.relation.num_dst, 1 if mean else heads, each), weight.to(attention.dtype)
    out = x.new_zeros(shape, dtype=scores.dtype) if mean else x.new_empty(shape, dtype=attention.result)
    for head in range(heads):
        for at in _blocks(each, attention.step):
            ft = _product(x, weight, head * each, at)
            part = _sum(attention, head, scores[head], scores[heads + head], ft)
            del ft
            if bias is not None:
                part += bias[head * each :][at]
            if attention.activation is not None:
                part = attention.activation(part)
            if mean:
                out[:, :, at] += part
            else:
                out[:, head : head + 1, at] = part
            del part  # before the next is made
    return out.div_(heads).squeeze(1).to(attention.result) if mean else merged(out, attention.merge)


def _blocks(each: int, step: int) -> Iterator[slice]:
    """The columns of a head, in blocks of about the same size."""
    count = blocks_of_columns(each, step)
    for k in range(count):
        yield slice(each * k // count, each * (k + 1) // count)


def _scores(x: Tensor, weight: Tensor, attn: Tensor) -> Tensor:
    """``[2 * heads, n, 1, 1]``: of sources, then of destinations; float32 of bfloat16."""
    dtype = computed_in(weight.dtype)
    (rows,) = products(x, folded(weight.to(dtype), attn.to(dtype)))
    return rows.t().contiguous().view(rows.shape[1], len(x), 1, 1)


def _product(x: Tensor, weight: Tensor, first: int, at: slice) -> Tensor:
    """Columns ``at`` of W x, ``[n, 1, c]``, counted from column ``first``."""
    return products(x, weight[first:][at])[0].unsqueeze(1)


def _sum(attention: Attention, head: int, el: Tensor, er: Tensor, ft: Tensor) -> Tensor:
    """Some columns of the sum over in-edges, ``[n, 1, c]``. Collective."""
    seed = attention.seed + head  # all blocks of a head have the same mask
    weights = factors(el, er, attention.slope, attention.dropout_p, seed)
    return ex.evaluate(attention.relation, ex.binary("mul", ex.load("u", ft), weights), "sum")


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        weight: Tensor,
        attn_l: Tensor,
        attn_r: Tensor,
        bias: Optional[Tensor],
        attention: Attention,
        saved: Tuple[Saved, Optional[Held]],
    ) -> Tensor:
        attn = torch.cat([attn_l, attn_r])
        rows_saved, ctx.held = saved
        ctx.attention = attention
        ctx.dtypes = [None if t is None else t.dtype for t in (x, weight, attn_l, attn_r, bias)]
        ctx.save_for_backward(*rows_saved, weight, attn, bias)
        return forward(attention, x, weight, attn, bias)

    @staticmethod
    @differentiable_once("GATConv")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        source, normalized, recipe, weight, attn, bias = ctx.saved_tensors
        x = rows_of(Saved(source, normalized, recipe), ctx.held)
        attention: Attention = ctx.attention
        _, heads, each = attn.shape
        mean, scores = attention.merge == "mean", _scores(x, weight, attn)
        weight, whole, wide = weight.to(attention.dtype), weight.to(scores.dtype), scores.dtype
        grad = grad.reshape(len(grad), 1 if mean else heads, each)
        _, for_x, for_w, for_l, for_r, for_b, *_ = ctx.needs_input_grad
        grad_x = torch.zeros_like(x, dtype=wide) if for_x else None
        grad_w, grad_b = torch.empty_like(whole), whole.new_empty(len(weight))
        of_scores = torch.empty_like(scores)
        for head in range(heads):
            el, er = (scores[side + head].detach().requires_grad_() for side in (0, heads))
            for at in _blocks(each, attention.step):
                rows = slice(head * each + at.start, head * each + at.stop)
                ft = _product(x, weight, head * each, at).requires_grad_()
                with torch.enable_grad():
                    out = _sum(attention, head, el, er, ft)
                of_out = grad[:, 0 if mean else head, at].to(wide, copy=True, memory_format=torch.contiguous_format)
                if mean:
                    of_out /= heads
                if attention.activation is not None:
                    _differentiate(attention.activation, out.detach().squeeze(1), bias, rows, of_out)
                grad_b[rows] = of_out.sum(0)
                out.backward(of_out.unsqueeze(1))
                assert ft.grad is not None
                of_ft = ft.grad.squeeze(1)
                del ft, out, of_out
                (grad_w[rows],) = sums(x, of_ft)
                if grad_x is not None:
                    add_product(grad_x, of_ft, weight[rows])
                del of_ft  # before the next block
            assert el.grad is not None and er.grad is not None
            of_scores[head], of_scores[heads + head] = el.grad, er.grad
        of_rows = of_scores.view(2 * heads, len(x)).t()
        of_folded, attn = sums(x, of_rows)[0].view(2, heads, -1), attn.to(wide)
        if grad_x is not None:
            grad_x.addmm_(of_rows, folded(whole, attn))
        grad_w += torch.einsum("shd,shi->hdi", attn, of_folded).flatten(0, 1)
        of_attn = torch.einsum("hdi,shi->shd", whole.view(heads, each, -1), of_folded)
        wanted = [for_x, for_w, for_l, for_r, for_b and bias is not None]
        found = zip([grad_x, grad_w, of_attn[:1], of_attn[1:], grad_b], wanted, ctx.dtypes)
        return None, *(g.to(d) if g is not None and w else None for g, w, d in found), None, None


def _differentiate(
    activation: Callable[[Tensor], Tensor], out: Tensor, bias: Optional[Tensor], columns: slice, grad: Tensor
) -> None:
    """Makes of the gradient of ``activation(out + bias[columns])`` that of ``out``, both ``[n, c]``, in its memory."""
    for at in slices(out):
        z = (out[at].clone() if bias is None else out[at] + bias[columns]).requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad(activation(z.clone()), z, grad[at])  # it may work in place
        grad[at] = found
