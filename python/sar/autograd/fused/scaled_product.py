"""Graph convolutions in one piece, as a product that is scaled before and after the sum over in-edges::

    out = right . A (left . x) W' + x W_self' + b

``A`` takes the sum or the mean of in-edges; ``left`` and ``right`` are a factor for each source and destination.
GraphSAGE with the mean has no factors, Kipf and Welling's convolution (GraphConv, PyG's GCNConv) no ``W_self``.

**GraphSAGE.** As three modules, the layer computes two products and their sum, and in backward two gradients of x and
their sum, each of the size of the features. Here the second product of each pair is accumulated into the first. Where x
needs no gradient, both products are computed in one pass over x, which may lie on disk. With g the gradient of the
result, the gradients are::

    W: (A' g)' x      W_self: g' x      x: (A' g) W + g W_self

so A x need not be saved if A' g is computed anyway. If x is narrower than the result, A x is saved and A' (g W) is
computed, which sends fewer numbers. If x needs no gradient, backward sends nothing.

A worker may have to run the three modules, for example because one of them has a hook. It sends the same as the fused
form, with one exception: if the mean comes before the product and x is no narrower than the result, the modules send
g W and the fused form g. In that case each fused worker offers g in forward, and sends it if all workers offered it
(``abi.FUSED``); otherwise it sends g W.

**PyG's GCNConv.** Its steps make a tensor each of the product, the scaled product, the sum and the scaled sum. Here
both are scaled in place, by nodes of their own: backward of a node holds the gradient that it was given until it
returns, so no more than two gradients of the size of the rows exist at a time.

Rows that batch norm made are recomputed instead of saved (:mod:`.recompute`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from sar._engine import abi, columns, schedule, session as _session, storage
from sar.autograd import memo
from sar.autograd.aggregate import aggregate
from sar.autograd.autocast import product_dtype
from sar.autograd.compile import uncompiled
from sar.autograd.double_backward import differentiable_once
from sar.autograd.types import Agreed, Relation, anchor
from sar.graph.manager import GraphShardManager

from . import low_memory
from .costs import offers_gradient, product_first
from .deferred import DeferredTensor, computed
from .eligibility import fits_alone, note_choice, sage_unfit
from .prepared import constant_of
from .recompute import Held, Saved, rows_of, save
from .row_blocks import Factor, Rows, add_product, affine, multiply, over_rows, products, sums

if TYPE_CHECKING:
    from .constant import Constant


@uncompiled
def sage_conv(graph: Any, layer: Any, feat: Any, edge_weight: Any, aggregator: str) -> Optional[Tensor]:
    """The fused result of a SAGEConv, of DGL or of ``sar.nn``; None if the layer has to run its own steps."""
    feat = computed(feat)
    plain = aggregator == "mean" and edge_weight is None
    fused = plain and sage_unfit(layer, aggregator) is None
    fused = fused and all(fits_alone(graph, feat, fc.weight, fc.in_features) for fc in (layer.fc_self, layer.fc_neigh))
    if plain and low_memory.active():
        fused = low_memory.all_fit(fused)
    constant = constant_of(layer) if plain and isinstance(graph, GraphShardManager) else None
    neigh = layer.fc_neigh
    first = product_first(getattr(neigh, "in_features", 0), getattr(neigh, "out_features", 0))
    if not note_choice(layer, graph, fused):
        if constant is not None and not first:
            constant.missed()
        return None
    own = layer.fc_self
    x, relation = layer.feat_drop(feat), graph._relation(None)
    out = sage_mean(relation, x, neigh.weight, own.weight, own.bias, first, constant)
    if layer.activation is not None:
        out = layer.activation(out)
    return out if layer.norm is None else layer.norm(out)


Factors = Tuple[Optional[Tensor], Optional[Tensor]]
"""Of sources ``[num_src, 1]`` and of destinations ``[num_dst, 1]``; None: all are 1."""


@uncompiled
def normalized_sum(
    relation: Relation,
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    factors: Callable[[], Factors],
    of: Tuple[Any, ...],
    constant: Optional[Constant] = None,
    first: bool = True,
) -> Tensor:
    """PyG's GCNConv, and GraphConv. Collective in forward and backward.

    :param x: ``[num_src, i]``, which may be deferred. If nobody has read it, it is computed in blocks of rows, in both
        passes, and never exists as a whole
    :param weight: ``[o, i]``
    :param bias: ``[o]``
    :param factors: gives the factors of sources and destinations, which are constant
    :param of: what they depend on
    :param constant: what is kept of the rows of earlier calls, on all workers or on none. Sums of those that are no
        wider than the result come before the product, so that they can be kept
    :param first: whether the product comes before the sum where nothing is kept
    :returns: ``[num_dst, o]``
    """
    unread = x._state.unread() if isinstance(x, DeferredTensor) else None
    if unread is None:
        x = computed(x).contiguous()
    source, made_by = (x, None) if unread is None else unread
    factor = None if constant is None else constant.sparse(x)
    total = None
    if constant is not None and not product_first(x.shape[1], len(weight)):
        total = constant.kept((relation, x.dtype, *of), lambda: _sum(relation, x, *factors()))
    if total is None and not first:
        total = _sum(relation, x, *factors())
    if total is not None:
        return nn.functional.linear(total, weight, bias)
    out = _sum(relation, _Product.apply(x, weight, save(source, len(weight)), made_by, factor), *factors(), own=True)
    return out if bias is None else out.add_(bias)


def _sum(relation: Relation, u: Tensor, left: Optional[Tensor], right: Optional[Tensor], own: bool = False) -> Tensor:
    """``right . A (left . u)``; ``own``: nobody else has u, which is changed in place."""
    if left is not None:
        u = u.mul_(left) if own else u * left
    out = aggregate(relation, "copy_u", "sum", u, None)
    return out if right is None else out.mul_(right)


class _Product(torch.autograd.Function):
    """``x W'``. ``saved``: of x, or of what ``made_by`` computes rows of x from; ``factor``: what stands for x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        saved: Tuple[Saved, Optional[Held]],
        made_by: Optional[Rows],
        factor: Optional[Factor],
    ) -> Tensor:
        rows_saved, ctx.held = saved
        ctx.save_for_backward(*rows_saved, weight)
        ctx.made_by, ctx.factor = made_by, factor
        ctx.gradients = x._state.gradients if isinstance(x, DeferredTensor) else None
        rows = x if made_by is None else rows_saved.source
        (out,) = products(rows, weight, made_by=made_by, factor=factor, at_once=made_by is None)
        return out

    @staticmethod
    @differentiable_once("GCNConv")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        *rows_saved, weight = ctx.saved_tensors
        saved = Saved(*rows_saved)
        for_x, for_weight, *_ = ctx.needs_input_grad
        grad_weight = None
        if for_weight and ctx.made_by is not None:
            (grad_weight,) = sums(saved.source, grad, made_by=ctx.made_by)
        elif for_weight:
            x = rows_of(saved, ctx.held)
            (grad_weight,) = sums(x, grad, factor=ctx.factor, at_once=for_x)
            del x  # before the gradient of it is made
        grad_x = multiply(grad, weight) if for_x else None
        if grad_x is not None and ctx.gradients is not None:
            grad_x = ctx.gradients.read(grad_x)
        return grad_x, grad_weight, None, None, None


@uncompiled
def sage_mean(
    relation: Relation,
    x: Tensor,
    w_neigh: Tensor,
    w_self: Tensor,
    bias: Optional[Tensor],
    first: bool,
    constant: Optional[Constant] = None,
) -> Tensor:
    """Collective in forward and backward.

    :param x: ``[num_src, i]``; destinations are its first rows
    :param w_neigh: ``[o, i]``
    :param w_self: ``[o, i]``
    :param bias: ``[o]``
    :param first: whether the product with ``w_neigh`` comes before the mean; the same on all workers. Rows that are
        sent before they are multiplied have the dtype of x, also under autocast
    :param constant: what is kept of the rows of earlier calls, on all workers or on none
    :returns: ``[num_dst, o]``
    """
    _session.current().follow_config()
    dtype = product_dtype(x, w_neigh)
    # sums over blocks of columns would be rounded after each block
    if low_memory.active() and dtype != torch.bfloat16:
        return sum_by_columns(relation, "mean", x.contiguous(), w_neigh, w_self, bias, None, first)
    agreed = Agreed()
    x = x.contiguous()
    factor = mean = None
    if constant is not None:
        factor = constant.sparse(x)
        mean = None if first else constant.kept((relation, dtype), lambda: _mean(relation, x, 0)[0].to(dtype))
    known = _Known(save(x, len(w_self)), factor, mean)
    out: Tensor = _SageMean.apply(anchor(), x, w_neigh, w_self, bias, relation, agreed, known, first, dtype)
    own = (x, w_neigh, w_self, bias)
    return out if agreed.bits or any(t is not None and t.requires_grad for t in own) else out.detach()


def sum_by_columns(
    relation: Relation,
    reduce: str,
    x: Tensor,
    weight: Tensor,
    w_self: Optional[Tensor],
    bias: Optional[Tensor],
    left: Optional[Tensor],
    first: bool,
) -> Tensor:
    """``A (left . x) W' + x W_self' + b`` without gradients, beside x and the result in the memory of some columns."""
    (out_features, in_features), rows = weight.shape, relation.num_dst
    spec = abi.AggregateSpec(relation.index, "copy_u", reduce, storage.travels_as(x))
    out = x.new_zeros((rows, out_features)) if w_self is None else nn.functional.linear(x[:rows], w_self, bias)
    step = low_memory.columns(in_features, out_features)
    for begin in range(0, out_features if first else in_features, step):
        at = slice(begin, begin + step)
        u = x.mm(weight[at].t()) if first else x[:, at].clone(memory_format=torch.contiguous_format)
        if left is not None:
            u.mul_(left)
        total = u.new_empty((rows, u.shape[1]))
        abi.aggregate_forward(relation.handle, spec, 0, u, None, total)
        if first:
            out[:, at] += total
        else:
            out.addmm_(total, weight[:, at].t())
        del u, total  # before the next are made
    return out


class _Known(NamedTuple):
    """What is known of the rows x of a SAGEConv before it computes.

    :ivar factor: what stands for them in products, where they are constant
    :ivar mean: of neighbours, where it was kept
    """

    saved: Tuple[Saved, Optional[Held]]
    factor: Optional[Factor]
    mean: Optional[Tensor]


def _mean(relation: Relation, u: Tensor, need: int) -> Tuple[Tensor, int]:
    """The mean of rows over neighbours, and what workers agreed on."""
    mean = storage.empty((relation.num_dst, u.shape[1]), u.dtype)
    return mean, memo.forward(relation, _spec(relation, u), need, u, None, mean)


def _spec(relation: Relation, u: Tensor) -> abi.AggregateSpec:
    return abi.AggregateSpec(relation.index, "copy_u", "mean", storage.travels_as(u))


class _SageMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        w_neigh: Tensor,
        w_self: Tensor,
        bias: Optional[Tensor],
        relation: Relation,
        agreed: Agreed,
        known: _Known,
        first: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        in_features, out_features, rows = x.shape[1], w_self.shape[0], relation.num_dst
        ctx.dtypes = [None if t is None else t.dtype for t in (x, w_neigh, w_self, bias)]
        grads = ctx.needs_input_grad
        constant = not grads[1]  # then it may lie in a file
        w_neigh, w_self = w_neigh.to(dtype), w_self.to(dtype)
        bias = None if bias is None else bias.to(dtype)
        u, of_own, mean, bits = x, None, known.mean, 0
        if first and constant:
            u, of_own = products(x, w_neigh, w_self, own=rows, factor=known.factor)
        elif first:
            u = multiply(x.to(dtype), w_neigh.t())
        need = abi.GRAD_U if grads[0] and (grads[1] or (first and grads[2])) else 0
        need |= abi.FUSED if not first and offers_gradient(in_features, out_features) else 0
        if mean is None:
            mean, bits = _mean(relation, u, need)
        ctx.operation = schedule.last()
        agreed.bits = bits & abi.GRAD_U
        mean = mean.to(dtype)
        if first:
            out = add_product(mean, x[:rows].to(dtype), w_self.t()) if of_own is None else of_own.add_(mean)
            if bias is not None:
                out.add_(bias)
        else:
            if known.factor is None:
                out = affine(x[:rows].to(dtype), w_self.t(), bias)
            else:
                (out,) = known.factor.products(w_self)
                out = out if bias is None else out.add_(bias)
            add_product(out, mean, w_neigh.t())
        narrow = not first and not (agreed.bits and bits & abi.FUSED)
        rows_saved, ctx.held = known.saved
        ctx.save_for_backward(*rows_saved, w_neigh, w_self, mean if narrow else None)
        ctx.relation, ctx.spec, ctx.agreed, ctx.factor = relation, _spec(relation, u), bits, known.factor
        return out

    @staticmethod
    @differentiable_once("SAGEConv")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        *rows_saved, w_neigh, w_self, mean = ctx.saved_tensors
        saved = Saved(*rows_saved)
        _, for_x, for_neigh, for_self, for_bias, *_ = ctx.needs_input_grad
        grad = grad.contiguous()
        grad_x = grad_neigh = grad_self = at_grad = None  # at_grad: A' g
        wanted = ctx.agreed & abi.GRAD_U
        if mean is None and wanted:
            shape = saved.source.shape[0], grad.shape[1]
            at_grad = storage.empty(shape, grad.dtype) if for_x or for_neigh else None
            _back(ctx, grad, at_grad)
        # x goes before the gradient of it is made
        if for_self or (for_neigh and at_grad is not None):
            x = rows_of(saved, ctx.held)
            factors = [at_grad] if for_neigh and at_grad is not None else []
            factors += [grad] if for_self else []
            found = sums(x, *factors, factor=ctx.factor, at_once=for_x)
            grad_self = found.pop() if for_self else None
            grad_neigh = found.pop() if found else None
            del x
        if mean is not None:
            grad_neigh = over_rows(grad, mean) if for_neigh else None
            del mean
            if wanted:
                grad_x = storage.empty(saved.source.shape, saved.source.dtype) if for_x else None
                _back(ctx, multiply(grad, w_neigh), grad_x)
        elif at_grad is not None and for_x:
            grad_x = multiply(at_grad, w_neigh)
            del at_grad
        if grad_x is not None:
            add_product(grad_x[: grad.shape[0]], grad, w_self)
        grad_bias = columns.totals(grad) if for_bias else None
        grads = zip((grad_x, grad_neigh, grad_self, grad_bias), ctx.dtypes)
        return None, *(g if g is None else g.to(d) for g, d in grads), None, None, None, None, None


def _back(ctx: Any, grad: Tensor, grad_u: Optional[Tensor]) -> None:
    """``grad_u = A' grad`` over all workers; ``grad_u`` is ``None`` where this one has no use for its rows."""
    abi.aggregate_backward(ctx.relation.handle, ctx.spec, ctx.agreed, None, None, grad, grad_u, None, ctx.operation)
