"""Tensors that are computed again in backward instead of saved.

What makes such a tensor notes how to compute it (:func:`note`). An expression that reads it then saves nothing
(:func:`values_of`). That is for the writer of the tensor to decide: nobody may be able to change it in ways that torch
does not count.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Values = Callable[[], Tensor]


class _Noted(NamedTuple):
    values: Values
    version: int


_noted: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def note(tensor: Tensor, values: Values) -> None:
    """``values`` gives the values of a tensor again, with the same bits, in backward of what read it."""
    _noted[tensor] = _Noted(values, tensor._version)


def values_of(tensor: Tensor) -> Optional[Values]:
    """What gives the values of a tensor again, which may be another view of all elements of one that was noted."""
    if not _noted:
        return None
    whole = tensor if tensor in _noted or tensor._base is None else tensor._base
    noted: Optional[_Noted] = _noted.get(whole)
    if noted is None or whole._version != noted.version:
        return None
    if not tensor.is_contiguous() or tensor.numel() != whole.numel():
        return None
    again, shape = noted.values, tensor.shape
    return lambda: again().view(shape)
