"""Whether memory is held by nobody else, so that it may be overwritten.

A gradient that autograd hands to a node may also be held by a hook, by ``torch.autograd.grad``, by another node that
was handed the same, or by a view. How many hold it is counted by Python, by torch's tensor and by its memory. What the
counts are for a gradient that nobody else holds depends on the versions of both, so it is found out with one that a
node made.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from sar.autograd.once import differentiable_once

__all__ = ["sole_gradient", "sole_memory"]

Counts = Tuple[int, int, int]


def sole_gradient(grad: Tensor) -> bool:
    """Whether backward of a node alone holds the gradient that it was handed. Backward asks for its own argument, of
    which it has no other reference. Of a tensor of a subclass, this says nothing of tensors inside it."""
    counts = _counts(grad)
    return counts is not None and counts == _of_sole_gradient() and not grad.requires_grad


def sole_memory(tensor: Tensor) -> bool:
    """Whether no other tensor refers to the memory of this one, and the memory is torch's own."""
    held = _held(tensor)
    return held is not None and held == _held(torch.empty(1))


def _counts(grad: Tensor) -> Optional[Counts]:
    """References of Python, of torch, and to the memory."""
    with torch._C.DisableTorchFunctionSubclass():
        held = _held(grad)
        if held is None or not hasattr(grad, "_use_count"):
            return None
        return sys.getrefcount(grad), grad._use_count(), held


def _held(tensor: Tensor) -> Optional[int]:
    """None where torch cannot tell (2.2), or where the memory is not torch's own."""
    count, storage = getattr(torch._C, "_storage_Use_Count", None), tensor.untyped_storage()
    if count is None or not hasattr(storage, "resizable") or not storage.resizable():
        return None
    return int(count(storage._cdata))


@functools.cache
def _of_sole_gradient() -> Optional[Counts]:
    found: List[Optional[Counts]] = []

    class Makes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        @differentiable_once("a probe")
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return torch.zeros(2)

    class Counted(Makes):
        @staticmethod
        @differentiable_once("a probe")
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            found.append(_counted(grad))
            return grad

    with torch.enable_grad():
        made = Makes.apply(Counted.apply(torch.zeros(2, requires_grad=True)))
        torch.autograd.backward(made, torch.zeros(2))
    return found[0]


def _counted(grad: Tensor) -> Optional[Counts]:
    """As many calls from backward as :func:`sole_gradient` is."""
    return _counts(grad)
