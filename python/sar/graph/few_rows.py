"""Lets layers run on workers with few rows as on those with many."""

from __future__ import annotations

from math import prod
from typing import Any, List, Sequence

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class FewRows(TorchFunctionMode):
    """Inside, tensors of no row, or of one, are reshaped as tensors of more rows are.

    ``x.view(rows, -1, width)`` is an error where ``rows`` is 0, because -1 could then be any number; here it is what it
    would be with rows. Where torch copies tensors of two rows, these are copied too: otherwise they would share memory
    on this worker, because torch takes any tensor without rows for contiguous, and what is written in place would show
    here alone.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _RESHAPES or kwargs or args[0].shape[:1] not in ((0,), (1,)):
            return func(*args, **(kwargs or {}))
        x, rest = args[0], list(args[1:])
        if func in _TO_SHAPES:
            shape = list(rest[0]) if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
            if shape[:1] == [0] and -1 in shape:
                shape = _resolved(x.shape[1:], shape)
            rest = [shape]
        found = func(x, *rest)
        return found.clone() if func in _COPY and type(x) is Tensor and _copied(func, x, rest) else found


_TO_SHAPES = frozenset([Tensor.view, Tensor.reshape, torch.reshape])
_COPY = frozenset([Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten, Tensor.contiguous])
_RESHAPES = _TO_SHAPES | _COPY


def _copied(func: Any, x: Tensor, rest: List[Any]) -> bool:
    """Whether torch would copy a tensor that has two rows, and otherwise the same shape and strides."""
    two = torch.empty_strided((2, *x.shape[1:]), x.stride(), dtype=x.dtype, device="meta")
    if func in _TO_SHAPES:
        rest = [[-1, *rest[0][1:]]]
    try:
        found = func(two, *rest)
    except RuntimeError:  # -1 elsewhere, so rows are not kept apart
        return False
    return found.untyped_storage()._cdata != two.untyped_storage()._cdata  # in inference mode nothing is a view


def _resolved(features: Sequence[int], shape: Sequence[int]) -> List[int]:
    count, known = prod(features), prod(size for size in shape[1:] if size != -1)
    return [count // known if size == -1 else size for size in shape] if known else list(shape)
