"""Lets layers run on workers without rows."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["EmptyRows"]


class EmptyRows(TorchFunctionMode):
    """Inside, tensors without rows are reshaped as tensors with rows are.

    ``x.view(rows, -1, width)`` is an error where ``rows`` is 0, because -1 could then be any number; here it is what it
    would be with rows.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        if func in _RESHAPES and not kwargs and isinstance(args[0], Tensor) and args[0].shape[:1] == (0,):
            shape = tuple(args[1]) if len(args) == 2 and isinstance(args[1], (tuple, list)) else tuple(args[1:])
            if shape and shape[0] == 0 and -1 in shape:
                args = (args[0], _resolved(args[0].shape[1:], shape))
        return func(*args, **(kwargs or {}))


_RESHAPES = frozenset([Tensor.view, Tensor.reshape, torch.reshape])


def _resolved(features: Sequence[int], shape: Sequence[int]) -> Tuple[int, ...]:
    count = known = 1
    for size in features:
        count *= size
    for size in shape[1:]:
        known *= 1 if size == -1 else size
    return tuple(count // known if size == -1 else size for size in shape) if known else tuple(shape)
