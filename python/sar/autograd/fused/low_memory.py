"""Inference in little memory.

Inside :func:`inference`, and without gradients:

- fused SAGE and GAT layers are computed by blocks of columns, so that beside input and output a layer holds some
  columns alone. As many bytes travel as otherwise, in more and smaller exchanges;
- features may be read from their file for each layer that wants them (:func:`reread`);
- what follows row by row (batch norm, activations) is computed in one piece, when something reads it (:func:`defer`).

All workers enter it together. Whether a layer is computed so is agreed, since it decides what is sent.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.distributed.agreement import anywhere

from .deferred import DeferredTensor, State
from .row_blocks import slices

Step = Callable[[Tensor], Tensor]
"""Rows to rows of the same shape and dtype, each row by itself."""
BLOCK_BYTES = 1 << 19
"""Bytes of rows that steps are applied to at once."""
MIN_BYTES = 1 << 20
"""Smaller tensors are not worth it."""
_on = False


@contextmanager
def inference() -> Iterator[None]:
    """Has layers that run inside take little memory, where gradients are off."""
    global _on
    before, _on = _on, True
    try:
        yield
    finally:
        _on = before


def active() -> bool:
    return _on and not torch.is_grad_enabled()


@uncompiled
def all_fit(fits: bool) -> bool:
    """Whether a layer fits on every worker. Collective."""
    return not anywhere(not fits)[0]


def columns(in_features: int, out_features: int) -> int:
    """Columns of a block: two such blocks are a sixteenth of input and output together."""
    return max(16, (in_features + out_features) // 32)


def defer(x: Tensor, step: Step) -> Optional[Tensor]:
    """``step`` of the rows of x, computed when something reads it; None where that would gain nothing.

    :param x: ``[n, ...]``, or a result of this function that nobody has read yet
    """
    if isinstance(x, DeferredTensor):
        state = x._state
        if isinstance(state, _Once) and state.steps is not None:
            return DeferredTensor(state.source, _Chain([*state.steps, step]), _Once)
        return None
    if type(x) is not Tensor or x.dim() < 2 or not x.is_contiguous() or not x.is_floating_point():
        return None
    if x.device.type != "cpu" or x.numel() * x.element_size() < MIN_BYTES:
        return None
    return DeferredTensor(x.detach(), _Chain([step]), _Once)


def reread(shape: Sequence[int], dtype: torch.dtype, read: Callable[[], Tensor]) -> Tensor:
    """A tensor whose values are read when something wants them, and dropped when nobody holds them any longer; read
    again the next time. Without gradients.

    :param read: gives the values, of that shape and dtype
    """
    nothing = torch.empty((), dtype=dtype).expand(*shape)  # the shape alone
    return DeferredTensor(nothing, _File(read), _Dropped)


class _File(NamedTuple):
    """Values that come from elsewhere."""

    read: Callable[[], Tensor]

    def apply(self, source: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            return self.read()


class _Dropped(State):
    """Holds the values as long as somebody else does."""

    _last: Optional[ReferenceType[Tensor]] = None

    def plain(self, tensor: DeferredTensor) -> Tensor:
        return self.values()

    def values(self) -> Tensor:
        found = self._values
        if found is None and self._last is not None:
            found = self._last()
        if found is None:
            found = self.compute()
            self._last = ref(found)
        return found

    def changed(self, tensor: DeferredTensor) -> None:
        self._values = self.values()  # from now on it is another tensor than the file's
        super().changed(tensor)


class _Once(State):
    """Holds what the values are computed from until they are there."""

    @property
    def steps(self) -> Optional[List[Step]]:
        """What is still to be computed."""
        return self.rule.steps if isinstance(self.rule, _Chain) and self._values is None else None

    def plain(self, tensor: DeferredTensor) -> Tensor:
        return self.values()

    def values(self) -> Tensor:
        if self._values is None:
            self.source = super().values()
        return super().values()


class _Chain(NamedTuple):
    """Steps one after the other, block of rows by block of rows."""

    steps: List[Step]

    def apply(self, source: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():  # what runs here is not deferred again
            out = torch.empty_like(source)
            for at in slices(source, BLOCK_BYTES):
                rows = source[at]
                for step in self.steps:
                    rows = step(rows)
                out[at] = rows
            return out
