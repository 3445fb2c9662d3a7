"""Batch normalization over the rows of all workers, alone or with the activation and dropout that follow.

Every worker computes the count, mean and sum of squared deviations of its own rows in one pass; these are merged in
order of rank, in double precision (Chan, Golub and LeVeque's formula), so that no large numbers are subtracted from
each other and the result hardly depends on how many workers there are. One small collective in forward and one in
backward, ``2 f`` numbers per worker for f features. Workers without rows take part.

Only the rows before normalization are saved for backward; the others are recomputed (:mod:`.recompute`).
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import abi, columns, schedule, session as _session
from sar._engine.columns import Moments
from sar._engine.storage import computed_in
from sar.autograd.compile import uncompiled
from sar.autograd.double_backward import differentiable_once
from sar.autograd.types import anchor
from sar.config import Config
from sar.distributed.agreement import of_every_rank

from . import low_memory
from .deferred import DeferredTensor
from .dropout import Draws, keys_of
from .recompute import Recipe


class Norm:
    """How the rows of one input are normalized: vectors of ``[f]`` numbers.

    :param x: ``[n, f]``, contiguous
    :param distributed: by the moments of all workers' rows. Then collective
    :param graph: whose rows they are, of a prepared module: all workers then agree on what dropout draws from. None:
        each draws for itself
    :raises ValueError: no worker has a row
    """

    def __init__(
        self,
        x: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        eps: float,
        distributed: bool,
        graph: Any = None,
    ) -> None:
        grad = torch.is_grad_enabled()
        self.distributed = distributed
        seed = None if graph is None else int(torch.randint(_SEEDS, ()))
        self.moments, self.shared, seed, everywhere = all_moments(
            x.detach(), grad and x.requires_grad, distributed, seed
        )
        self.operation = schedule.last()
        rows, mean, m2 = self.moments
        if rows == 0:
            raise ValueError("DistributedBN1D: no worker has a row, so there is no mean to normalize by")
        own = (p is not None and p.requires_grad for p in (weight, bias))
        self.needs_backward = grad and (self.shared or any(own))
        self.invstd = (m2 / rows + eps).rsqrt()
        self.scale = self.invstd if weight is None else self.invstd * weight.detach().double()
        self.dtypes = [None if p is None else p.dtype for p in (weight, bias)]
        dtype = computed_in(x.dtype)
        about = mean.to(dtype)
        self.off = mean - about.double()
        shift = -self.off * self.scale
        if bias is not None:
            shift += bias.detach().double()
        self.columns = torch.stack([about, self.scale.to(dtype), shift.to(dtype)])
        self.recipe = Recipe(self.columns, draws=Draws(keys_of(graph, len(x), everywhere), seed))

    def backward(
        self, needs: Tuple[bool, bool, bool], grad: Tensor, x: Tensor, recipe: Recipe, out: Optional[Tensor]
    ) -> Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
        """Gradients of x, weight and bias, as far as they are needed. Collective where x of any worker needs one.

        :param grad: contiguous, of what ``recipe`` makes in the engine
        :param out: where the gradient of x goes, which may be ``grad`` or ``x``
        """
        drop = recipe.dropped(x)
        # own sums of grad and of grad * (x - mean)
        plain, along = columns.normalize_sums(grad, x, self.columns, recipe.relu, drop)
        along = along - self.off * plain
        for_weight = (along * self.invstd).to(self.dtypes[0]) if needs[1] else None
        for_bias = plain.to(self.dtypes[1]) if needs[2] else None
        grad_x = None
        if self.shared:
            total = torch.stack([plain, along])
            if self.distributed:
                _session.all_reduce(total, "sum", abi.TRAIN, self.operation)
            if needs[0]:
                # scale * (grad - mean of grad - xhat * mean of grad * xhat), as the engine takes it:
                # grad * scale + (x - about) * times + plus
                plain, along = total / self.moments.rows
                times = -self.scale * self.invstd.square() * along
                plus = -self.scale * plain - self.off * times
                numbers = torch.cat([self.columns, torch.stack([times, plus]).to(self.columns.dtype)])
                grad_x = torch.empty_like(grad) if out is None else out
                columns.normalize_grad(grad, x, numbers, recipe.relu, drop, grad_x)
        return grad_x, for_weight, for_bias


@uncompiled
def normalized(
    x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], norm: Norm, recipe: Recipe, reuse: bool = False
) -> Tensor:
    """Rows of x normalized by ``norm``, which was made from x, and what ``recipe`` has after that. They are computed
    when they are first read; if ReLU reads normalized rows, only ReLU of them is computed. With ``Config.fuse`` off
    they are computed at once. There is one autograd node, whatever reads them. Collective in backward.

    :param reuse: whether backward may overwrite x
    """
    if not norm.needs_backward:
        later = low_memory.defer(x, recipe.apply) if low_memory.active() and recipe.drop is None else None
        return recipe.apply(x) if later is None else later
    source = x.detach()
    made = DeferredTensor(source, recipe) if Config.fuse else recipe.apply(x)
    result: Tensor = _Normalize.apply(anchor(), x, weight, bias, norm, recipe, reuse and not x.is_leaf, (source, made))
    return result


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        norm: Norm,
        recipe: Recipe,
        reuse: bool,
        given: Tuple[Tensor, Tensor],
    ) -> Tensor:
        source, made = given  # in a tuple, as they are no inputs to autograd
        ctx.save_for_backward(source)
        ctx.norm, ctx.recipe, ctx.reuse = norm, recipe, reuse
        ctx.gradients = made._state.gradients if isinstance(made, DeferredTensor) else None
        return made

    @staticmethod
    @differentiable_once("batch norm")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        (x,) = ctx.saved_tensors
        if ctx.gradients is not None:
            ctx.gradients.check(grad)
        recipe: Recipe = ctx.recipe
        out = None
        if not recipe.in_engine:
            grad = out = recipe.back(grad, x)
            recipe = ctx.norm.recipe
        if ctx.reuse:
            out = x
            torch.autograd.graph.increment_version(x)  # torch refuses to read it as a saved tensor from now on
        found = ctx.norm.backward(ctx.needs_input_grad[1:4], grad.contiguous(), x, recipe, out)
        return None, *found, None, None, None, None


# ---- moments -----------------------------------------------------------------


_SEEDS = 1 << 53
"""Double precision holds whole numbers below."""


def all_moments(
    x: Tensor, needs_grad: bool, distributed: bool, seed: Optional[int]
) -> Tuple[Moments, bool, Optional[int], Optional[List[int]]]:
    """Moments over all workers, whether any of them needs a gradient of its rows, rank 0's seed, if workers have one,
    and the rows of each where distributed. Collective then."""
    rows, mean, m2 = own = columns.moments(x)
    if not distributed:
        return own, needs_grad, seed, None
    head = [float(rows), float(needs_grad), *([] if seed is None else [float(seed)])]
    lines = of_every_rank(torch.cat([torch.tensor(head, dtype=torch.float64), mean, m2]))
    total = Moments(0, torch.zeros_like(mean), torch.zeros_like(m2))
    for line in lines:
        total = total.merged(Moments(int(line[0]), *line[len(head) :].view(2, -1)))
    counts = [int(n) for n in lines[:, 0]]
    return total, bool(lines[:, 1].any()), None if seed is None else int(lines[0, 2]), counts
