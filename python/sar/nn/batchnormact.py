"""Batch norm, activation and dropout in one module, which saves one tensor for backward."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.autograd.fused.batch_norm import Norm, normalized
from sar.autograd.once import differentiable_once
from sar.autograd.types import anchor

from .batch_norm import DistributedBN1D, check_features

ACTIVATIONS = {
    "none": None,
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
_BLOCK_BYTES = 1 << 20
"""Of rows that are computed again at a time: what backward needs beside its results is a few times that."""


class BatchNormAct(DistributedBN1D):
    """``dropout(activation(batch_norm(x)))`` over the rows of all workers.

    Gives the same numbers as the three modules one after another, but saves only x for backward, while they save x, the
    normalized rows, the activated rows and the dropout mask. The rest is recomputed in backward, in blocks of rows.
    Collective in forward and backward, as :class:`sar.DistributedBN1D` is, whose parameters it has.

    :param n_feats: features, f
    :param activation: ``"none"``, ``"relu"``, ``"leaky_relu"``, ``"elu"``, ``"gelu"``, ``"tanh"`` or ``"sigmoid"``
    :param dropout: share of elements set to 0 in training
    :raises ValueError: another activation, or a share outside [0, 1)
    """

    def __init__(self, n_feats: int, activation: str = "relu", dropout: float = 0.0, **options: Any) -> None:
        super().__init__(n_feats, **options)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation {activation!r} is unknown: give one of {', '.join(ACTIVATIONS)}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout}: give a share in [0, 1)")
        self.activation = activation
        self.dropout = dropout

    def forward(self, inp: Tensor) -> Tensor:
        """``[n, f]`` float32 or float64 to the same shape. Collective where distributed.

        :raises ValueError: another shape, or no worker has a row
        :raises TypeError: another dtype
        """
        function = ACTIVATIONS[self.activation]
        if self.running_mean is not None and not self.training:
            plain = super().forward(inp)
            return plain if function is None else function(plain)
        check_features(inp, self.n_feats)
        inp = inp.contiguous()
        dropout_p = self.dropout if self.training else 0.0
        seed = int(torch.randint(0, 1 << 62, ()).item()) if dropout_p > 0 else 0
        norm = self._norm(inp)
        if dropout_p == 0 and self.activation in ("none", "relu"):
            rows = normalized(inp, self.weight, self.bias, norm)
            return rows if function is None else function(rows)
        out: Tensor = _NormAct.apply(anchor(), inp, self.weight, self.bias, norm, function, dropout_p, seed)
        return out if norm.needs_backward else out.detach()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation}, dropout={self.dropout}"


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        norm: Norm,
        function: Optional[Callable[[Tensor], Tensor]],
        dropout_p: float,
        seed: int,
    ) -> Tensor:
        ctx.save_for_backward(x)
        ctx.norm, ctx.rest = norm, (function, dropout_p, seed)
        out = torch.empty_like(x)
        for rows, mask in _blocks(x, dropout_p, seed):
            y = norm.apply(x[rows], False)
            y = y if function is None else function(y)
            out[rows] = y if mask is None else y.mul_(mask)
        return out

    @staticmethod
    @differentiable_once("BatchNormAct")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        (x,) = ctx.saved_tensors
        function, dropout_p, seed = ctx.rest
        inner = torch.empty_like(grad, memory_format=torch.contiguous_format)
        for rows, mask in _blocks(x, dropout_p, seed):
            part = grad[rows] if mask is None else grad[rows] * mask
            if function is not None:
                with torch.enable_grad():
                    y = ctx.norm.apply(x[rows], False).requires_grad_()
                    (part,) = torch.autograd.grad(function(y), y, part)
            inner[rows] = part
        found = ctx.norm.backward(ctx.needs_input_grad[1:4], inner, x, False, out=inner)
        return None, *found, None, None, None, None


def _blocks(x: Tensor, dropout_p: float, seed: int) -> Iterator[Tuple[slice, Optional[Tensor]]]:
    """Blocks of rows, each with what its elements are multiplied by: the same in both passes."""
    generator = torch.Generator().manual_seed(seed) if dropout_p > 0 else None
    count = max(64, _BLOCK_BYTES // max(1, x.shape[1] * x.element_size()))
    for begin in range(0, x.shape[0], count):
        rows = slice(begin, min(begin + count, x.shape[0]))
        if generator is None:
            yield rows, None
        else:
            mask = torch.empty(rows.stop - rows.start, x.shape[1], dtype=x.dtype)
            yield rows, mask.bernoulli_(1 - dropout_p, generator=generator).div_(1 - dropout_p)
