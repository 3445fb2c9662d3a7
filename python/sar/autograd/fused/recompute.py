"""Rows that batch norm makes, with the activation and dropout that follow it, recomputed in backward from its input.
So are rows that a dropout makes by itself.

Batch norm saves its input for backward anyway. A layer that reads its result therefore saves that input instead of the
rows (:func:`save`), and recomputes the rows in backward (:func:`rows_of`). All of this is local.

The rows may be changed between batch norm and the layer in ways that torch does not track (``h.data.mul_(2)``, a numpy
array that shares their memory). So the layer saves a checksum of the rows it read, and backward raises an error if the
recomputed rows differ.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, NamedTuple, Optional
from weakref import ReferenceType, ref

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from sar._engine import columns as kernels
from sar._engine.storage import computed_in

from .costs import holds_rows
from .dropout import Draws, Drop
from .row_blocks import slices

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


class Recipe(NamedTuple):
    """``dropout(activation((x - columns[0]) * columns[1] + columns[2]))`` for rows x, ``[n, f]``.

    :ivar columns: ``[3, f]``; None: x is not normalized, and there is no activation
    :ivar activation: one of :data:`ACTIVATIONS`
    :ivar drop: what is dropped, the same each time the rows are computed; None: nothing
    :ivar draws: gives what a dropout of the rows drops
    """

    columns: Optional[Tensor]
    activation: str = "none"
    drop: Optional[Drop] = None
    draws: Optional[Draws] = None

    @property
    def in_engine(self) -> bool:
        """Whether a pass of the engine computes it. Then each row is computed by itself."""
        return self.activation in ("none", "relu")

    @property
    def relu(self) -> bool:
        """Whether ReLU follows in the engine."""
        return self.activation == "relu"

    def apply(self, source: Tensor, first: int = 0) -> Tensor:
        """The rows, in new memory, of which torch counts no changes yet; ``first``: the number of the first of them,
        where ``source`` is some of all."""
        out = torch.empty_like(source)
        if self.in_engine:
            kernels.normalize(source, self.columns, self.relu, self.dropped(source, first), out)
            return out.data
        function = ACTIVATIONS[self.activation]
        assert function is not None
        for at in slices(source, least=64):
            rows = self._empty(source[at])
            kernels.normalize(source[at], self.columns, False, None, rows)
            rows.copy_(function(rows))
            if self.drop is not None:
                kernels.normalize(rows, None, False, self.dropped(rows, first + at.start), rows)
            out[at] = rows
        return out.data

    def _empty(self, like: Tensor) -> Tensor:
        """In the type that is computed in."""
        return torch.empty_like(like, dtype=computed_in(like.dtype))

    def note(self, rows: Tensor, source: Tensor, keep: bool = False) -> None:
        """Remembers that :meth:`apply` made these rows of ``source``, which lives as long as they do with ``keep``."""
        _made[rows] = _Origin(TensorWeakRef(source), source._version, self, source if keep else None)

    def back(self, grad: Tensor, source: Tensor) -> Tensor:
        """The gradient of the normalized rows, by that of the result, in new memory."""
        if self.activation == "none":
            return grad.contiguous() if self.drop is None else self.drop.apply(grad)
        out = torch.empty_like(grad, memory_format=torch.contiguous_format)
        if self.relu:
            assert self.columns is not None
            kernels.normalize_back(grad.contiguous(), source, self.columns, True, self.dropped(source), out)
            return out
        function = ACTIVATIONS[self.activation]
        assert function is not None
        for at in slices(source, least=64):
            part, drop = grad[at], self.dropped(source[at], at.start)
            if drop is not None:
                kernels.normalize(part.contiguous(), None, False, drop, out[at])
                part = out[at]
            rows = self._empty(source[at])
            kernels.normalize(source[at], self.columns, False, None, rows)
            rows.requires_grad_()
            with torch.enable_grad():
                (part,) = torch.autograd.grad(function(rows), rows, part.to(rows.dtype))
            out[at] = part
        return out

    def dropped(self, rows: Tensor, first: int = 0) -> Optional[kernels.Dropout]:
        """What the engine drops of some rows, or of all."""
        return None if self.drop is None else self.drop.of(first, len(rows))

    def _numbers(self) -> List[int]:
        if self.drop is None:
            return [_NAMES.index(self.activation), 0, 0, -1]
        (share,) = struct.unpack("q", struct.pack("d", self.drop.share))
        return [_NAMES.index(self.activation), share, self.drop.seed, self.drop.keys.number]

    @staticmethod
    def _of(columns: Optional[Tensor], activation: int, bits: int, seed: int, keys: int) -> Recipe:
        (share,) = struct.unpack("d", struct.pack("q", bits))
        return Recipe(columns, _NAMES[activation], None if keys < 0 else Drop.known(share, seed, keys))


class _Origin(NamedTuple):
    source: TensorWeakRef  # who keeps the rows, as sar.remat does, need not keep what they were made of
    version: int
    recipe: Recipe
    kept: Optional[Tensor]


_made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""For rows that batch norm made, as long as they are there: of what and how."""


class Saved(NamedTuple):
    """What a layer saves of rows: three tensors, of one shape in every pass of ``torch.utils.checkpoint``."""

    source: Tensor  # the rows, or what they are computed from
    columns: Tensor  # [3, f], of the recipe
    numbers: Tensor  # int64 [6]: whether there is a recipe (2: with columns), the rows' checksum, the recipe's numbers


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


def save(x: Tensor, results: int) -> tuple[Saved, Optional[Held]]:
    """What a layer has to save for rows that it needs again in backward: batch norm's input, if batch norm made them.

    :param x: ``[n, f]``, contiguous
    :param results: columns of what the layer makes of them
    """
    origin: Optional[_Origin] = _made.get(x)
    source = None if origin is None else origin.source()
    columns = x.new_zeros(3, x.shape[1], dtype=computed_in(x.dtype))
    if origin is None or source is None or x._version or source._version != origin.version or not x.shape[1]:
        return Saved(x, columns, torch.zeros(6, dtype=torch.int64)), None
    kind = 1 if origin.recipe.columns is None else 2
    numbers = torch.tensor([kind, kernels.checksum(x.detach()), *origin.recipe._numbers()])
    saved = Saved(source, columns if origin.recipe.columns is None else origin.recipe.columns, numbers)
    held = Held(x)
    if not holds_rows(results, x.shape[1]):
        held.take()
    return saved, held


def rows_of(saved: Saved, held: Optional[Held]) -> Tensor:
    """The rows that :func:`save` was given, which are not held any longer.

    :raises RuntimeError: they were changed between batch norm and the layer, in a way that torch does not count
    """
    rows = held.take() if held is not None else None
    if rows is not None:
        return rows
    kind, checksum, *numbers = saved.numbers.tolist()
    if not kind:
        return saved.source
    rows = Recipe._of(None if kind == 1 else saved.columns, *numbers).apply(saved.source)
    if kernels.checksum(rows) != checksum:
        raise RuntimeError(
            "the rows that a layer read are not those that batch norm or dropout made: they were changed in between in "
            "a way that torch does not count, through h.data, h.detach().numpy() or the like, so gradients would be "
            "wrong. Use an operation on h itself (h = h * 2, or h.mul_(2) under torch.no_grad()), or give the layer "
            "h.clone()"
        )
    return rows
