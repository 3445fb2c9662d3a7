"""Typed calls into the engine: column statistics and normalization of own rows, for batch norm.

Rows are ``[n, f]``, contiguous; sums of columns are float64 ``[f]``, and numbers of columns have the dtype that is
computed in. Each tensor of rows has that dtype, or is bfloat16: then it is widened where it is read, and rounded once
where it is written.
"""

from __future__ import annotations

import ctypes as ct
from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from . import library
from .signatures import TYPES

_Dropout: Any = TYPES["sar_dropout"]


class Dropout(NamedTuple):
    """What is dropped of rows, which are known by ``keys``, int64 ``[n]``, or from ``key_base`` on."""

    share: float
    seed: int
    keys: Optional[Tensor]
    key_base: int = 0


def _dropped(drop: Optional[Dropout]) -> Any:
    """The same, as the engine takes it."""
    if drop is None:
        return None
    view = None if drop.keys is None else library.tensor(drop.keys)
    made = _Dropout(drop.share, drop.seed, None if view is None else ct.pointer(view), drop.key_base)
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
    library.call("sar_column_moments", x, found)
    return Moments(len(x), found[0], found[1])


def totals(x: Tensor) -> Tensor:
    """Sums of columns ``[f]``, of bfloat16 in float64: torch copies all of those to float32 first."""
    if x.dtype != torch.bfloat16:
        return x.sum(0)
    rows, mean, _ = moments(x.contiguous())
    return mean * rows


def checksum(x: Tensor) -> int:
    """A hash of the bytes of a contiguous tensor, 63 bits of it."""
    return library.call("sar_checksum", x) >> 1


def normalize(x: Tensor, columns: Optional[Tensor], relu: bool, drop: Optional[Dropout], out: Tensor) -> None:
    """``(x - columns[0]) * columns[1] + columns[2]``, or x, and ReLU and dropout of it, into ``out``."""
    library.call("sar_normalize", x, columns, relu, _dropped(drop), out)


def normalize_back(
    grad: Tensor, x: Tensor, columns: Tensor, relu: bool, drop: Optional[Dropout], out: Tensor
) -> None:
    """The gradient of ``(x - columns[0]) * columns[1] + columns[2]``, by that of what :func:`normalize` gives of it,
    into ``out``, which is neither of them."""
    library.call("sar_normalize_back", grad, x, columns, relu, _dropped(drop), out)


def normalize_sums(
    grad: Tensor, x: Tensor, columns: Tensor, relu: bool, drop: Optional[Dropout]
) -> Tuple[Tensor, Tensor]:
    """Sums of ``grad`` and of ``grad * (x - columns[0])``. ``grad`` is of what :func:`normalize` gives."""
    found = x.new_empty((2, x.shape[1]), dtype=torch.float64)
    library.call("sar_normalize_sums", grad, x, columns, relu, _dropped(drop), found)
    return found[0], found[1]


def normalize_grad(
    grad: Tensor, x: Tensor, columns: Tensor, relu: bool, drop: Optional[Dropout], grad_x: Tensor
) -> None:
    """``grad * columns[1] + (x - columns[0]) * columns[3] + columns[4]`` into ``grad_x``, which may be ``grad`` or x;
    ``grad`` as for :func:`normalize_sums`."""
    library.call("sar_normalize_grad", grad, x, columns, relu, _dropped(drop), grad_x)
