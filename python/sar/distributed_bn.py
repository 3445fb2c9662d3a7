"""Batch normalization over the rows of all workers.

Every worker computes the count, mean and sum of squared deviations of its own rows; these are merged in order of rank,
in double precision (Chan, Golub and LeVeque's formula), so that no large numbers are subtracted from each other and the
result hardly depends on how many workers there are. One small collective in forward and one in backward, ``2 f``
numbers per worker for f features. Workers without rows take part.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import Parameter

from . import _abi, _session
from .core.lazy import EdgeTensor

__all__ = ["DistributedBN1D", "MeanOp", "VarOp", "convert_batchnorm", "mean_op", "var_op"]


class DistributedBN1D(nn.Module):
    """Normalizes each feature by its mean and variance over the rows of all workers.

    ``out[i, c] = (x[i, c] - mean[c]) / sqrt(var[c] + eps) * weight[c] + bias[c]``, with the biased variance, as
    ``torch.nn.BatchNorm1d`` has it in training. Collective in forward and backward.

    :param n_feats: features, f
    :param eps: added to the variance
    :param affine: learn ``weight`` and ``bias`` (``[f]`` each)
    :param distributed: normalize over all workers, or over the worker's own rows; ``None``: over all workers if
        :func:`sar.initialize_comms` was called before the first forward
    :param track_running_stats: keep ``running_mean`` and ``running_var`` and use them after ``eval()``. Without them
        the statistics are those of the input, in ``eval()`` too
    :param momentum: weight of the newest statistics in the running ones; ``None``: their average
    """

    running_mean: Optional[Tensor]
    running_var: Optional[Tensor]
    num_batches_tracked: Optional[Tensor]

    def __init__(
        self,
        n_feats: int,
        eps: float = 1e-5,
        affine: bool = True,
        distributed: Optional[bool] = None,
        *,
        track_running_stats: bool = False,
        momentum: Optional[float] = 0.1,
    ) -> None:
        super().__init__()
        self.n_feats = n_feats
        self.eps = eps
        self.affine = affine
        self.distributed = distributed
        self.track_running_stats = track_running_stats
        self.momentum = momentum
        self.weight = Parameter(torch.ones(n_feats)) if affine else None
        self.bias = Parameter(torch.zeros(n_feats)) if affine else None
        tracked = track_running_stats
        self.register_buffer("running_mean", torch.zeros(n_feats) if tracked else None)
        self.register_buffer("running_var", torch.ones(n_feats) if tracked else None)
        self.register_buffer("num_batches_tracked", torch.tensor(0) if tracked else None)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, running statistics as at the start."""
        if self.weight is not None and self.bias is not None:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def forward(self, inp: Tensor) -> Tensor:
        """Normalizes ``inp``, ``[n, f]`` float32 or float64. Collective where distributed.

        :raises ValueError: another shape, or no worker has a row
        :raises TypeError: another dtype
        """
        if isinstance(inp, EdgeTensor):
            inp = inp.materialize()  # an autograd.Function does not ask for torch's function overrides
        _check(inp, self.n_feats)
        if self.running_mean is not None and self.running_var is not None and not self.training:
            return F.batch_norm(inp, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        if self.distributed is None:
            self.distributed = _session.peek() is not None
        anchor = torch.empty(0, requires_grad=torch.is_grad_enabled())
        found = _Found()
        out: Tensor = _Normalize.apply(anchor, inp, self.weight, self.bias, self.eps, self.distributed, found)
        self._follow(found)
        return out if found.needs_backward else out.detach()

    def _follow(self, found: _Found) -> None:
        """Moves the running statistics, where there are any, towards those of the input."""
        mean, var, batches = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or var is None or batches is None:
            return
        with torch.no_grad():
            batches += 1
            share = 1.0 / float(batches) if self.momentum is None else self.momentum
            unbiased = found.moments.m2 / max(found.moments.rows - 1, 1)
            mean += share * (found.moments.mean.to(mean.dtype) - mean)
            var += share * (unbiased.to(var.dtype) - var)

    def extra_repr(self) -> str:
        return (
            f"{self.n_feats}, eps={self.eps}, affine={self.affine}, distributed={self.distributed}, "
            f"track_running_stats={self.track_running_stats}"
        )


def convert_batchnorm(module: nn.Module) -> nn.Module:
    """Makes batch norm in a model global: every ``torch.nn.BatchNorm1d`` becomes a :class:`DistributedBN1D`.

    Batch norm inside a layer sees the rows of one worker; without this the statistics, and so the results, depend on
    how the graph was split. Parameters, running statistics and names in ``state_dict`` stay. Keep what it returns::

        model = sar.convert_batchnorm(model)

    :param module: changed in place, unless it is a batch norm itself
    :returns: the module to use in its place
    """
    if isinstance(module, nn.BatchNorm1d):
        made = DistributedBN1D(
            module.num_features,
            module.eps,
            module.affine,
            track_running_stats=module.track_running_stats,
            momentum=module.momentum,
        )
        # the same objects, so that an optimizer that holds them, and parameters that are shared, go on working
        made.weight, made.bias = module.weight, module.bias
        made.running_mean, made.running_var = module.running_mean, module.running_var
        made.num_batches_tracked = module.num_batches_tracked
        made.train(module.training)
        return made
    for name, child in module.named_children():
        replaced = convert_batchnorm(child)
        if replaced is not child:
            setattr(module, name, replaced)
    return module


class _Moments(NamedTuple):
    """Rows, mean and sum of squared deviations, float64 ``[f]``, over all workers."""

    rows: int
    mean: Tensor
    m2: Tensor


class _Found:
    """Carries what forward found out of it."""

    moments: _Moments
    shared = False
    """Whether the input of any worker needs a gradient."""
    needs_backward = False

    def over(self, x: Tensor, needs: Sequence[bool], distributed: bool) -> Tuple[Tensor, Tensor]:
        """Mean and biased variance over all workers, ``[f]`` in the input's dtype. ``needs``: which of anchor, input,
        weight and bias need a gradient on this worker."""
        self.moments, self.shared = _all_moments(x, needs[0] and needs[1], distributed)
        if self.moments.rows == 0:
            raise ValueError("DistributedBN1D: no worker has a row, so there is no mean to normalize by")
        self.needs_backward = needs[0] and (self.shared or any(needs[1:4]))
        return self.moments.mean.to(x.dtype), (self.moments.m2 / self.moments.rows).to(x.dtype)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        eps: float,
        distributed: bool,
        found: _Found,
    ) -> Tensor:
        mean, var = found.over(x, ctx.needs_input_grad, distributed)
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(var + eps))
        ctx.found, ctx.distributed, ctx.eps = found, distributed, eps
        return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        return _backward(ctx, grad, *ctx.saved_tensors)


def _backward(
    ctx: Any,
    grad: Tensor,
    x: Tensor,
    weight: Optional[Tensor],
    mean: Tensor,
    invstd: Tensor,
    into: Optional[Tensor] = None,
) -> Tuple[Optional[Tensor], ...]:
    """Gradients for the arguments of :class:`_Normalize`, from the gradient of what it returned. That of x goes to
    ``into``, which may be ``grad`` itself."""
    needs = ctx.needs_input_grad
    # own sums of grad * xhat and of grad, in one pass over both
    grad_weight, grad_bias = _sums(grad, x, weight, mean, invstd, ctx.eps)
    grad_x = None
    if ctx.found.shared:
        total = torch.cat([grad_weight, grad_bias]).double()
        if ctx.distributed:
            _session.all_reduce(total, "sum", _abi.TRAIN)
        if needs[1]:
            along, shift = (total / ctx.found.moments.rows).to(x.dtype).split(x.shape[1])
            # grad_x = scale * (grad - shift - xhat * along), as a * grad + b * x + c: two passes
            scale = invstd if weight is None else invstd * weight
            b = -scale * invstd * along
            grad_x = torch.empty_like(grad) if into is None else into
            torch.addcmul(-scale * shift - b * mean, grad, scale, out=grad_x).addcmul_(x, b)
    return None, grad_x, grad_weight if needs[2] else None, grad_bias if needs[3] else None, None, None, None


def _all_moments(x: Tensor, wants: bool, distributed: bool) -> Tuple[_Moments, bool]:
    """Moments over all workers, and whether any of them needs a gradient of its rows."""
    rows, features = x.shape
    mean, m2 = _own_moments(x.detach())
    if not distributed:
        return _Moments(rows, mean, m2), wants
    session = _session.current()
    # every worker fills its own line; adding zeros changes nothing, so all get the same lines to the bit
    lines = torch.zeros(session.world, 2 * features + 2, dtype=torch.float64)
    lines[session.rank] = torch.cat([torch.tensor([float(rows), float(wants)], dtype=torch.float64), mean, m2])
    _session.all_reduce(lines, "sum", _abi.TRAIN)
    count = 0.0
    mean, m2 = torch.zeros_like(mean), torch.zeros_like(m2)
    for line in lines:
        n = float(line[0])
        if n == 0:
            continue
        delta = line[2 : 2 + features] - mean
        mean = mean + delta * (n / (count + n))
        m2 = m2 + line[2 + features :] + delta * delta * (count * n / (count + n))
        count += n
    return _Moments(int(count), mean, m2), bool(lines[:, 1].any())


BLOCK_ROWS = 8192
"""Rows that torch's kernels sum in the input's own precision before they are merged in double precision."""


def _own_moments(x: Tensor) -> Tuple[Tensor, Tensor]:
    """Mean and sum of squared deviations of own rows, float64 ``[f]``; zeros where there are no rows.

    torch's kernel for batch norm is the fastest there is, but it adds rows one after another in single precision. So it
    gets blocks, which are merged in double precision; and as its squares are about a mean with that error, they are
    moved to the mean that torch's pairwise sum gives. Few large blocks, because each call starts all of torch's
    threads: with blocks of 256 rows a machine busy with other work spent most of an epoch waiting for them.
    """
    if x.shape[0] == 0:
        zeros = torch.zeros(x.shape[1], dtype=torch.float64)
        return zeros, zeros.clone()
    blocks = x.split(BLOCK_ROWS)
    rows = torch.tensor([float(block.shape[0]) for block in blocks], dtype=torch.float64).view(-1, 1)
    means = torch.stack([block.sum(0) for block in blocks]).double() / rows
    found = [torch.batch_norm_update_stats(block, None, None, 0.0) for block in blocks]
    about = torch.stack([m for m, _ in found]).double()
    squares = torch.stack([v for _, v in found]).double() - (means - about).square()
    mean = (means * rows).sum(0) / x.shape[0]
    return mean, ((squares.clamp_(min=0) + (means - mean).square()) * rows).sum(0)


def _sums(
    grad: Tensor, x: Tensor, weight: Optional[Tensor], mean: Tensor, invstd: Tensor, eps: float
) -> Tuple[Tensor, Tensor]:
    """Sums over own rows of ``grad * xhat`` and ``grad``."""
    if x.shape[0] == 0:
        return torch.zeros_like(mean), torch.zeros_like(mean)
    _, along, plain = torch.ops.aten.native_batch_norm_backward(
        grad, x, weight, None, None, mean, invstd, True, eps, [False, True, True]
    )
    return along, plain


def _check(x: Tensor, features: Optional[int] = None) -> None:
    if x.dim() != 2 or (features is not None and x.shape[1] != features):
        raise ValueError(f"the input has shape {tuple(x.shape)}, expected (n, {'f' if features is None else features})")
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"the input is {x.dtype}: batch statistics take float32 or float64")


class _Moment(torch.autograd.Function):
    """``E[x ** power]`` over the rows of all workers, ``[f]``; power is 1 or 2."""

    power = 1

    @classmethod
    def _forward(cls, ctx: Any, x: Tensor) -> Tensor:
        _check(x)
        own = x.detach().double()
        total = torch.cat([own.pow(cls.power).sum(0), own.new_tensor([x.shape[0]])])
        _session.all_reduce(total, "sum", _abi.TRAIN)
        ctx.count = total[-1].item()
        if ctx.count == 0:
            raise ValueError("no worker has a row, so there is no mean")
        return (total[:-1] / total[-1]).to(x.dtype)

    @staticmethod
    def _shared(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.double()
        _session.all_reduce(total, "sum", _abi.TRAIN)
        return (total / ctx.count).to(grad.dtype)


class MeanOp(_Moment):
    """``E[x]`` over the rows of all workers. Collective in forward and backward.

    ``MeanOp.apply(x)`` takes ``[n, f]`` float32 or float64 and gives ``[f]``. The gradient of x is exact when every
    worker's loss may depend on the result. All workers' inputs, or none, must need a gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.rows = x.shape[0]
        return MeanOp._forward(ctx, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Moment._shared(ctx, grad).expand(ctx.rows, -1)


class VarOp(_Moment):
    """``E[x ** 2]`` over the rows of all workers: with :class:`MeanOp`, the variance is ``E[x²] - E[x]²``.

    As :class:`MeanOp` otherwise. :class:`DistributedBN1D` does not use it, because that difference loses precision
    where the mean is large.
    """

    power = 2

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return VarOp._forward(ctx, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return x * (2 * _Moment._shared(ctx, grad))


mean_op = MeanOp.apply
var_op = VarOp.apply
