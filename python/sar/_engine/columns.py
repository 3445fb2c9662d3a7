"""Typed calls into the engine: column statistics and normalization of own rows, for batch norm.

Rows are ``[n, f]``, contiguous; numbers of columns have their dtype, sums of columns are float64 ``[f]``.
"""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor

from . import library


def moments(x: Tensor) -> Tuple[Tensor, Tensor]:
    """The mean of each column and the sum of squared deviations from it; zeros where there are no rows."""
    found = x.new_empty((2, x.shape[1]), dtype=torch.float64)
    library.call("sar_column_moments", x, found)
    return found[0], found[1]


def checksum(x: Tensor) -> int:
    """A hash of the bytes of a contiguous tensor, 63 bits of it."""
    return library.made("sar_checksum", x) >> 1


def normalize(x: Tensor, columns: Tensor, relu: bool, out: Tensor) -> None:
    """``(x - columns[0]) * columns[1] + columns[2]``, and ReLU of it, into ``out``."""
    library.call("sar_normalize", x, columns, relu, out)


def normalize_sums(grad: Tensor, x: Tensor, columns: Tensor, relu: bool) -> Tuple[Tensor, Tensor]:
    """Sums of ``grad`` and of ``grad * (x - columns[0])``; with ``relu``, ``grad`` counts where ReLU was above 0."""
    found = x.new_empty((2, x.shape[1]), dtype=torch.float64)
    library.call("sar_normalize_sums", grad, x, columns, relu, found)
    return found[0], found[1]


def normalize_grad(grad: Tensor, x: Tensor, columns: Tensor, relu: bool, grad_x: Tensor) -> None:
    """``grad * columns[1] + (x - columns[0]) * columns[3] + columns[4]`` into ``grad_x``, which may be ``grad``."""
    library.call("sar_normalize_grad", grad, x, columns, relu, grad_x)
