"""Rows that batch norm makes, with the activation and dropout that follow it, recomputed in backward from its input.

Batch norm saves its input for backward anyway. A layer that reads its result therefore saves that input instead of the
rows (:func:`save`), and recomputes the rows in backward (:func:`rows_of`). All of this is local.

The rows may be changed between batch norm and the layer in ways that torch does not track (``h.data.mul_(2)``, a numpy
array that shares their memory). So the layer saves a checksum of the rows it read, and backward raises an error if the
recomputed rows differ.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, Iterator, NamedTuple, Optional, Tuple
from weakref import ReferenceType, ref

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from sar._engine import columns as kernels
from sar._engine.storage import computed_in, rounded

ACTIVATIONS: Dict[str, Optional[Callable[[Tensor], Tensor]]] = {
    "none": None,
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
_NAMES = tuple(ACTIVATIONS)
_BLOCK_BYTES = 1 << 20
"""Of rows that are computed at a time: what backward needs beside its results is a few times that."""


class Recipe(NamedTuple):
    """``dropout(activation((x - columns[0]) * columns[1] + columns[2]))`` for rows x, ``[n, f]``.

    :ivar columns: ``[3, f]``
    :ivar activation: one of :data:`ACTIVATIONS`
    :ivar dropout_p: share of elements that are set to 0
    :ivar seed: of the mask, which is the same each time the rows are computed
    """

    columns: Tensor
    activation: str = "none"
    dropout_p: float = 0.0
    seed: int = 0

    @property
    def in_engine(self) -> bool:
        """Whether a pass of the engine computes it. Then each row is computed by itself."""
        return self.dropout_p == 0 and self.activation in ("none", "relu")

    def apply(self, source: Tensor) -> Tensor:
        """The rows, in new memory, of which torch counts no changes yet."""
        out = torch.empty_like(source)
        if self.in_engine:
            return apply(source, self.columns, self.activation == "relu", out).data
        function = ACTIVATIONS[self.activation]
        for at, mask in self._blocks(source):
            into = out[at]
            rows = apply(source[at], self.columns, False, into if into.dtype == self.dtype else self._empty(into))
            if function is not None:
                rows.copy_(function(rows))
            if mask is not None:
                rows.mul_(mask)
            rounded(rows, into)
        return out.data

    @property
    def dtype(self) -> torch.dtype:
        """What it is computed in."""
        return self.columns.dtype

    def _empty(self, like: Tensor) -> Tensor:
        return torch.empty_like(like, dtype=self.dtype)

    def note(self, rows: Tensor, source: Tensor) -> None:
        """Remembers that :meth:`apply` made these rows of ``source``."""
        _made[rows] = _Origin(TensorWeakRef(source), source._version, self)

    def back(self, grad: Tensor, source: Tensor) -> Tensor:
        """The gradient of the normalized rows, by that of the result, in new memory."""
        out = torch.empty_like(grad, memory_format=torch.contiguous_format)
        function = ACTIVATIONS[self.activation]
        for at, mask in self._blocks(source):
            part = grad[at] if mask is None else torch.mul(grad[at], mask, out=out[at])
            if function is torch.relu:
                rows = apply(source[at], self.columns, True, torch.empty_like(source[at]))
                torch.ops.aten.threshold_backward.grad_input(part, rows, 0, grad_input=out[at])
            elif function is not None:
                rows = apply(source[at], self.columns, False, self._empty(source[at])).requires_grad_()
                with torch.enable_grad():
                    (part,) = torch.autograd.grad(function(rows), rows, part.to(self.dtype))
                out[at] = part
            elif mask is None:
                out[at] = part
        return out

    def _blocks(self, source: Tensor) -> Iterator[Tuple[slice, Optional[Tensor]]]:
        """Blocks of rows, each with what its elements are multiplied by."""
        generator = np.random.Philox(key=self.seed) if self.dropout_p > 0 else None
        count = max(64, _BLOCK_BYTES // max(1, source.shape[1] * source.element_size()))
        for begin in range(0, len(source), count):
            at = slice(begin, begin + count)
            yield at, None if generator is None else self._mask(source[at], generator)

    def _mask(self, rows: Tensor, generator: np.random.Philox) -> Tensor:
        """16 bits of a generator that counts decide on an element: it is a few times as fast as torch's, which draws a
        number each. The share is rounded to as many bits."""
        words = torch.from_numpy(generator.random_raw(-(-rows.numel() // 4)).view(np.int16))
        least = min(round(self.dropout_p * (1 << 16)) - (1 << 15), (1 << 15) - 1)
        kept = (words[: rows.numel()] >= least).view(rows.shape)
        return kept.to(self.dtype).div_(1 - self.dropout_p)

    def _numbers(self) -> Tuple[int, int, int]:
        (share,) = struct.unpack("q", struct.pack("d", self.dropout_p))
        return _NAMES.index(self.activation), share, self.seed

    @staticmethod
    def _of(columns: Tensor, activation: int, share: int, seed: int) -> Recipe:
        (dropout_p,) = struct.unpack("d", struct.pack("q", share))
        return Recipe(columns, _NAMES[activation], dropout_p, seed)


def apply(source: Tensor, columns: Tensor, relu: bool, out: Tensor) -> Tensor:
    """The rows of ``source``, ``[n, f]``, normalized by ``columns``, ``[3, f]``, and then ReLU of them, in ``out``."""
    kernels.normalize(source, columns, relu, out)
    return out


class _Origin(NamedTuple):
    source: TensorWeakRef  # who keeps the rows, as sar.remat does, need not keep what they were made of
    version: int
    recipe: Recipe


_made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""For rows that batch norm made, as long as they are there: of what and how."""


class Saved(NamedTuple):
    """What a layer saves of rows: three tensors, of one shape in every pass of ``torch.utils.checkpoint``."""

    source: Tensor  # the rows, or what they are computed from
    columns: Tensor  # [3, f], of the recipe
    numbers: Tensor  # int64 [5]: whether there is a recipe, the checksum of the rows, and the recipe's numbers


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
    origin: Optional[_Origin] = _made.get(x)
    source = None if origin is None else origin.source()
    if origin is None or source is None or x._version or source._version != origin.version or not x.shape[1]:
        return Saved(x, x.new_zeros(3, x.shape[1], dtype=computed_in(x.dtype)), torch.zeros(5, dtype=torch.int64)), None
    numbers = torch.tensor([1, kernels.checksum(x.detach()), *origin.recipe._numbers()])
    return Saved(source, origin.recipe.columns, numbers), Held(x)


def rows_of(saved: Saved, held: Optional[Held]) -> Tensor:
    """The rows that :func:`save` was given, which are not held any longer.

    :raises RuntimeError: they were changed between batch norm and the layer, in a way that torch does not count
    """
    rows = held.take() if held is not None else None
    if rows is not None:
        return rows
    made, checksum, *numbers = saved.numbers.tolist()
    if not made:
        return saved.source
    rows = Recipe._of(saved.columns, *numbers).apply(saved.source)
    if kernels.checksum(rows) != checksum:
        raise RuntimeError(
            "the rows that a layer read are not those that batch norm made: they were changed in between in a way that "
            "torch does not count, through h.data, h.detach().numpy() or the like, so gradients would be wrong. Use an "
            "operation on h itself (h = h * 2, or h.mul_(2) under torch.no_grad()), or give the layer h.clone()"
        )
    return rows
