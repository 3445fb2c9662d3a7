"""Typed calls into the engine: column statistics and normalization of own rows, for batch norm.

Rows are ``[n, f]``, contiguous; sums of columns are float64 ``[f]``, and numbers of columns have the dtype that is
computed in. Rows of bfloat16 are widened in blocks.
"""

from __future__ import annotations

import ctypes as ct
from typing import Any, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from . import library
from .signatures import TYPES
from .storage import computed_in, rounded

_BLOCK = 1 << 18
"""Numbers of a block of rows that are widened."""
_Dropout: Any = TYPES["sar_dropout"]


class Dropout(NamedTuple):
    """What is dropped of rows, which are known by ``keys``, int64 ``[n]``, or from ``key_base`` on."""

    share: float
    seed: int
    keys: Optional[Tensor]
    key_base: int = 0


def _dropped(drop: Optional[Dropout], at: slice) -> Any:
    """The same of some of the rows, as the engine takes it."""
    if drop is None:
        return None
    view = None if drop.keys is None else library.tensor(drop.keys[at])
    made = _Dropout(drop.share, drop.seed, None if view is None else ct.pointer(view), drop.key_base + at.start)
    made._keep = view
    return made


class Moments(NamedTuple):
    """Rows, mean and sum of squared deviations, float64 ``[f]``."""

    rows: int
    mean: Tensor
    m2: Tensor

    def merged(self, other: Moments) -> Moments:
        """The moments of both rows together (Chan, Golub and LeVeque)."""
        if other.rows == 0:
            return self
        count, n = self.rows, other.rows
        delta = other.mean - self.mean
        mean = self.mean + delta * (n / (count + n))
        m2 = self.m2 + other.m2 + delta * delta * (count * n / (count + n))
        return Moments(count + n, mean, m2)


def moments(x: Tensor) -> Moments:
    """Those of own rows; zeros where there are none."""
    found = x.new_zeros((2, x.shape[1]), dtype=torch.float64)
    if x.dtype != torch.bfloat16:
        library.call("sar_column_moments", x, found)
        return Moments(len(x), found[0], found[1])
    total = Moments(0, found[0], found[1])
    for _, (rows,) in _widened(x):
        total = total.merged(moments(rows))
    return total


def checksum(x: Tensor) -> int:
    """A hash of the bytes of a contiguous tensor, 63 bits of it."""
    return library.call("sar_checksum", x) >> 1


def normalize(x: Tensor, columns: Optional[Tensor], relu: bool, drop: Optional[Dropout], out: Tensor) -> None:
    """``(x - columns[0]) * columns[1] + columns[2]``, or x, and ReLU and dropout of it, into ``out``."""
    for at, (rows, into) in _widened(x, into=out):
        library.call("sar_normalize", rows, columns, relu, _dropped(drop, at), into)
        rounded(into, out[at])


def normalize_sums(
    grad: Tensor, x: Tensor, columns: Tensor, relu: bool, drop: Optional[Dropout]
) -> Tuple[Tensor, Tensor]:
    """Sums of ``grad`` and of ``grad * (x - columns[0])``. ``grad`` is of what :func:`normalize` gives."""
    total = x.new_zeros((2, x.shape[1]), dtype=torch.float64)
    for at, (of_rows, rows) in _widened(grad, x):
        found = torch.empty_like(total)
        library.call("sar_normalize_sums", of_rows, rows, columns, relu, _dropped(drop, at), found)
        total += found
    return total[0], total[1]


def normalize_grad(
    grad: Tensor, x: Tensor, columns: Tensor, relu: bool, drop: Optional[Dropout], grad_x: Tensor
) -> None:
    """``grad * columns[1] + (x - columns[0]) * columns[3] + columns[4]`` into ``grad_x``, which may be ``grad`` or x;
    ``grad`` as for :func:`normalize_sums`."""
    for at, (of_rows, rows, into) in _widened(grad, x, into=grad_x):
        library.call("sar_normalize_grad", of_rows, rows, columns, relu, _dropped(drop, at), into)
        rounded(into, grad_x[at])


def _widened(*tensors: Tensor, into: Optional[Tensor] = None) -> Iterator[Tuple[slice, Tuple[Tensor, ...]]]:
    """The same rows of tensors in the type that is computed in, and room for those of ``into``: all rows, or blocks of
    them where some are bfloat16. Blocks share their memory."""
    read, rows = len(tensors), len(tensors[0])
    tensors = tensors if into is None else (*tensors, into)
    dtype = computed_in(*(t.dtype for t in tensors))
    if all(t.dtype == dtype for t in tensors):
        yield slice(0, rows), tensors
        return
    step = max(1, _BLOCK // max(1, tensors[0].shape[1]))
    made = [t if t.dtype == dtype else t.new_empty((min(step, rows), t.shape[1]), dtype=dtype) for t in tensors]
    for begin in range(0, max(1, rows), step):
        at = slice(begin, min(rows, begin + step))
        parts = [t[at] if b is t else b[: at.stop - at.start] for b, t in zip(made, tensors)]
        for b, t, part in zip(made[:read], tensors, parts):
            if b is not t:
                part.copy_(t[at])
        yield at, tuple(parts)
