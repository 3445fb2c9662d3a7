"""Batch normalization over the rows of all workers. What it computes is in :mod:`sar.autograd.fused.batch_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from sar._engine import abi, schedule, session as _session
from sar.autograd.compile import uncompiled
from sar.autograd.double_backward import differentiable_once
from sar.autograd.dtypes import FLOATS, refusal
from sar.autograd.fused.batch_norm import Norm, normalized
from sar.autograd.fused.prepared import prepared
from sar.graph.edge_tensor.tensor import EdgeTensor

__all__ = ["DistributedBN1D", "MeanOp", "VarOp", "mean_op", "var_op"]


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
    _dims: Tuple[int, ...] = (3,)
    """Of inputs that have more than rows and features."""
    _graph: Any = None
    """Whose nodes the rows are, in the place of a module that :func:`sar.prepare` was given."""

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
        """Normalizes ``inp``, ``[n, f]`` or ``[n, f, l]``, of floating-point numbers. Collective where distributed.

        In training the result is computed when it is first read, and so is ReLU of it, directly from ``inp``. Only
        ``inp`` is saved for backward.

        :raises ValueError: another shape, or no worker has a row
        :raises TypeError: another dtype
        """
        if isinstance(inp, EdgeTensor):
            inp = inp.materialize()  # an autograd.Function does not ask for torch's function overrides
        if inp.dim() in self._dims:  # each position is a row
            rows = inp.movedim(1, -1)
            return self.forward(rows.flatten(0, -2)).view(rows.shape).movedim(-1, 1).contiguous()
        check_features(inp, self.n_feats)
        if self.running_mean is not None and self.running_var is not None and not self.training:
            return F.batch_norm(inp, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        inp = inp.contiguous()
        norm = self._norm(inp)
        return normalized(inp, self.weight, self.bias, norm, norm.recipe)

    if TYPE_CHECKING:
        __call__ = forward

    @uncompiled
    def _norm(self, inp: Tensor) -> Norm:
        """The statistics of the input, which the running ones, where there are any, are moved towards."""
        if self.distributed is None:
            self.distributed = _session.peek() is not None
        known = prepared(self)
        graph = self._graph if known is None else known.graph
        norm = Norm(inp, self.weight, self.bias, self.eps, self.distributed, graph)
        mean, var, batches = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or var is None or batches is None:
            return norm
        with torch.no_grad():
            batches += 1
            weight_of_batch = 1.0 / float(batches) if self.momentum is None else self.momentum
            unbiased = norm.moments.m2 / max(norm.moments.rows - 1, 1)
            mean += weight_of_batch * (norm.moments.mean.to(mean.dtype) - mean)
            var += weight_of_batch * (unbiased.to(var.dtype) - var)
        return norm

    def extra_repr(self) -> str:
        return (
            f"{self.n_feats}, eps={self.eps}, affine={self.affine}, distributed={self.distributed}, "
            f"track_running_stats={self.track_running_stats}"
        )


def check_features(x: Tensor, features: Optional[int] = None) -> None:
    """Refuses what batch statistics cannot be taken of: all but ``[n, features]`` of a dtype of messages."""
    if x.dim() != 2 or (features is not None and x.shape[1] != features):
        raise ValueError(f"the input has shape {tuple(x.shape)}, expected (n, {'f' if features is None else features})")
    if x.dtype not in FLOATS:
        raise TypeError(refusal("the input of batch norm", x.dtype))


class _Moment(torch.autograd.Function):
    """``E[x ** power]`` over the rows of all workers, ``[f]``; power is 1 or 2."""

    power = 1

    @classmethod
    def _forward(cls, ctx: Any, x: Tensor) -> Tensor:
        check_features(x)
        own = x.detach().double()
        total = torch.cat([own.pow(cls.power).sum(0), own.new_tensor([x.shape[0]])])
        _session.all_reduce(total, "sum", abi.TRAIN)
        ctx.operation = schedule.last()
        ctx.count = total[-1].item()
        if ctx.count == 0:
            raise ValueError("no worker has a row, so there is no mean")
        return (total[:-1] / total[-1]).to(x.dtype)

    @staticmethod
    def _shared(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.double()
        _session.all_reduce(total, "sum", abi.TRAIN, ctx.operation)
        return (total / ctx.count).to(grad.dtype)


class MeanOp(_Moment):
    """``E[x]`` over the rows of all workers. Collective in forward and backward.

    ``MeanOp.apply(x)`` takes ``[n, f]`` of floating-point numbers and gives ``[f]``. The gradient of x is exact when
    every worker's loss may depend on the result. All workers' inputs, or none, must need a gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.rows = x.shape[0]
        return MeanOp._forward(ctx, x)

    @staticmethod
    @differentiable_once("MeanOp")
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
    @differentiable_once("VarOp")
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return x * (2 * _Moment._shared(ctx, grad))


mean_op = MeanOp.apply
var_op = VarOp.apply
