"""Recomputes rows in backward from the input of the batch norm that made them.

Batch norm saves its input for backward anyway. A layer that reads its result, or ReLU of it, therefore saves that input
instead of the rows (:func:`save`), and recomputes the rows in backward in one pass (:func:`rows_of`). All of this is
local.

The rows may be changed between batch norm and the layer in ways that torch does not track (``h.data.mul_(2)``, a numpy
array that shares their memory). So the layer saves a checksum of the rows it read, and backward raises an error if the
recomputed rows differ.
"""

from __future__ import annotations

from typing import NamedTuple, Optional
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from sar._engine import columns as kernels

_made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""For rows that batch norm made, as long as they are there: of what and how."""


class _Origin(NamedTuple):
    source: TensorWeakRef  # who keeps the rows, as sar.remat does, need not keep what they were made of
    version: int
    columns: Tensor
    relu: bool


def apply(source: Tensor, columns: Tensor, relu: bool) -> Tensor:
    """The rows of ``source``, ``[n, f]``, normalized by ``columns``, ``[3, f]``, and then ReLU of them; new memory."""
    out = torch.empty_like(source)
    kernels.normalize(source, columns, relu, out)
    return out


def note(rows: Tensor, source: Tensor, columns: Tensor, relu: bool) -> None:
    """Remembers what :func:`apply` made."""
    _made[rows] = _Origin(TensorWeakRef(source), source._version, columns, relu)


class Saved(NamedTuple):
    """What a layer saves of rows: three tensors, of one shape in every pass of ``torch.utils.checkpoint``."""

    source: Tensor  # the rows, or what they are computed from
    columns: Tensor  # [3, f], of apply
    recipe: Tensor  # int64 [2]: _AS_IT_IS, _NORMALIZED or _AFTER_RELU, and the checksum of the rows


_AS_IT_IS, _NORMALIZED, _AFTER_RELU = 0, 1, 2


class Held:
    """Rows that a layer read. They are released when a later layer reads rows, because backward begins with that
    layer."""

    _last: Optional[ReferenceType[Held]] = None

    def __init__(self, rows: Tensor) -> None:
        self._rows: Optional[Tensor] = rows.detach()
        before = None if Held._last is None else Held._last()
        if before is not None and before._rows is not None and before._rows.data_ptr() != rows.data_ptr():
            before._rows = None
        Held._last = ref(self)

    def take(self) -> Optional[Tensor]:
        """The rows, if they are still there as they were."""
        rows, self._rows = self._rows, None
        return None if rows is None or rows._version else rows


def save(x: Tensor) -> tuple[Saved, Optional[Held]]:
    """What a layer has to save for rows that it needs again in backward: batch norm's input, if batch norm made them.

    :param x: ``[n, f]``, contiguous
    """
    origin = _made.get(x)
    source = None if origin is None else origin.source()
    if origin is None or source is None or x._version or source._version != origin.version or not x.shape[1]:
        return Saved(x, x.new_zeros(3, x.shape[1]), torch.tensor([_AS_IT_IS, 0])), None
    recipe = torch.tensor([_AFTER_RELU if origin.relu else _NORMALIZED, kernels.checksum(x.detach())])
    return Saved(source, origin.columns, recipe), Held(x)


def rows_of(saved: Saved, held: Optional[Held]) -> Tensor:
    """The rows that :func:`save` was given, which are not held any longer.

    :raises RuntimeError: they were changed between batch norm and the layer, in a way that torch does not count
    """
    rows = held.take() if held is not None else None
    if rows is not None:
        return rows
    kind, checksum = saved.recipe.tolist()
    if kind == _AS_IT_IS:
        return saved.source
    rows = apply(saved.source, saved.columns, kind == _AFTER_RELU)
    if kernels.checksum(rows) != checksum:
        raise RuntimeError(
            "the rows that a layer read are not those that batch norm made: they were changed in between in a way that "
            "torch does not count, through h.data, h.detach().numpy() or the like, so gradients would be wrong. Use an "
            "operation on h itself (h = h * 2, or h.mul_(2) under torch.no_grad()), or give the layer h.clone()"
        )
    return rows
