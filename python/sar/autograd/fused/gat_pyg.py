"""Fused GAT layer of PyG: the sum of :mod:`sar.autograd.fused.gat`, with the bits of PyG's own steps.

W x is recomputed in backward instead of saved. Scores are computed from W x, and all sums are rounded in the order in
which PyG's steps and autograd add. So a worker whose layer has a hook, and runs those steps, gets the same numbers and
sends the same.

There are two nodes of autograd. Backward of the attention recomputes W x and leaves it for backward of the product and
the scores. That one begins when the result and its gradient are released, so it adds nothing to the peak of memory.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional, Tuple

import torch
from torch import Tensor

from sar.autograd import again, expression as ex, program
from sar.autograd.compile import uncompiled
from sar.autograd.once import differentiable_once
from sar.autograd.types import Relation
from sar.distributed.agreement import agreed_seed

from .recompute import Held, Saved, rows_of, save
from .row_blocks import products, sums

__all__ = ["attend"]

_BLOCK_BYTES = 1 << 20
"""Of rows that are multiplied at a time."""


@uncompiled
def attend(
    relation: Relation, x: Tensor, weight: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, dropout_p: float
) -> Tensor:
    """Collective in forward and backward.

    :param x: ``[n, i]``, of sources, which are the destinations too
    :param weight: ``[heads * each, i]``
    :param att_src: ``[1, heads, each]``, as ``att_dst``
    :param slope: of leaky_relu
    :param dropout_p: of the attention that is set to 0
    :returns: ``[n, heads, each]``
    """
    x = x.contiguous()
    product = _Product()
    ft, el, er = _Scores.apply(x, weight, att_src, att_dst, product, save(x))
    factors = ex.softmax(ex.unary("leaky_relu", ex.binary("add", ex.load("u", el), ex.load("v", er)), slope))
    if dropout_p > 0:
        factors = ex.dropout(factors, dropout_p, agreed_seed())
    again.note(ft, product.again)
    return program.run(relation, ex.binary("mul", factors, ex.load("u", ft)), "sum")


class _Product:
    """W x, computed again in backward."""

    ctx: Any = None

    def again(self) -> Tensor:
        """``[n, heads, each]``; stays until the gradients of the scores were computed."""
        return _again(self.ctx)[3]


def _again(ctx: Any) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, W, the vectors of the scores, and W x."""
    if ctx.kept is None:
        *rows_saved, weight, attn = ctx.saved_tensors  # once: torch.utils.checkpoint allows no more
        x = rows_of(Saved(*rows_saved), ctx.held)
        (ft,) = [x.mm(weight.t())] if ctx.needs_input_grad[0] else products(x, weight)
        ctx.kept = x, weight, attn, ft.view(len(x), *attn.shape[1:])
    found: Tuple[Tensor, Tensor, Tensor, Tensor] = ctx.kept
    return found


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        att_src: Tensor,
        att_dst: Tensor,
        product: _Product,
        saved: Tuple[Saved, Optional[Held]],
    ) -> Tuple[Tensor, Tensor, Tensor]:
        for_x, for_w, for_src, for_dst, *_ = ctx.needs_input_grad
        attn = torch.cat([att_src, att_dst])
        (ft,) = [x.mm(weight.t())] if for_x else products(x, weight)  # a constant x may lie in a file
        ft = ft.view(len(x), *attn.shape[1:])
        scores = ft.new_empty(2, *ft.shape[:2])
        for at in _blocks(ft):
            for side, vectors in zip(scores, attn):
                torch.sum(ft[at] * vectors, -1, out=side[at])
        el, er = (side.clone().unsqueeze(-1) for side in scores)
        wanted = {ft: for_x or for_w, el: for_x or for_w or for_src, er: for_x or for_w or for_dst}
        ctx.mark_non_differentiable(*(t for t, wants in wanted.items() if not wants))
        rows_saved, ctx.held = saved
        ctx.save_for_backward(*rows_saved, weight, attn)
        ctx.set_materialize_grads(False)
        product.ctx, ctx.kept = ctx, None
        return ft, el, er

    @staticmethod
    @differentiable_once("GATConv")
    def backward(
        ctx: Any, grad_ft: Optional[Tensor], grad_el: Optional[Tensor], grad_er: Optional[Tensor]
    ) -> Tuple[Optional[Tensor], ...]:
        x, weight, attn, ft = _again(ctx)
        ctx.kept = None
        for_x, for_w, for_src, for_dst, *_ = ctx.needs_input_grad
        if grad_ft is not None:  # nobody else has it
            for at in _blocks(grad_ft):
                for grad, vectors in ((grad_er, attn[1]), (grad_el, attn[0])):  # autograd begins with the last steps
                    if grad is not None:
                        grad_ft[at] += grad[at] * vectors
        of_dst = (grad_er * ft).sum(0, keepdim=True) if for_dst and grad_er is not None else None
        of_src = torch.mul(grad_el, ft, out=ft).sum(0, keepdim=True) if for_src and grad_el is not None else None
        del ft
        grad_x = grad_w = None
        if grad_ft is not None:
            grad_ft = grad_ft.flatten(1)
            if for_w:
                grad_w = grad_ft.t().mm(x) if for_x else sums(x, grad_ft)[0]
            del x
            grad_x = grad_ft.mm(weight) if for_x else None
        return grad_x, grad_w, of_src, of_dst, None, None


def _blocks(rows: Tensor) -> Iterator[slice]:
    count = max(1, _BLOCK_BYTES // max(1, rows[:1].numel() * rows.element_size()))
    for begin in range(0, len(rows), count):
        yield slice(begin, begin + count)
