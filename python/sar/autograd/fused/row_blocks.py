"""Products of constant rows with weights, some rows at a time.

Rows of features may lie in a file that is larger than memory (``Config.features``). So what reads them goes through
them once, in ascending order: while it computes with some rows, the system is asked for those that follow. Features in
memory are read in the same blocks, so that a worker gets the same bits whether it maps its features or not.
"""

from __future__ import annotations

from typing import Iterator, List

import torch
from torch import Tensor

from sar._engine import mappings

UNIT = 3072
"""Blocks are multiples of so many rows: then sums over rows have the bits that one product of all rows gives, since the
libraries of matrix products sum over some hundred rows at a time (192, 256, 384), which divide this."""
MOST = 8 * UNIT
BLOCK_BYTES = 32 << 20


def block_rows(x: Tensor) -> int:
    """Rows of a block: up to :data:`BLOCK_BYTES` of them, but at least :data:`UNIT` rows."""
    units = BLOCK_BYTES // max(1, UNIT * x.shape[1] * x.element_size())
    return min(MOST, UNIT * max(1, units))


def blocks(x: Tensor) -> Iterator[slice]:
    """All rows, block by block. A last one of less than :data:`UNIT` rows is part of the one before: libraries have
    other loops for few rows, whose sums have other bits."""
    starts = list(range(0, max(1, len(x) - UNIT + 1), block_rows(x)))
    found = [slice(begin, end) for begin, end in zip(starts, [*starts[1:], len(x)])]
    mappings.will_read(x[found[0]])
    for rows, following in zip(found, [*found[1:], slice(0, 0)]):
        mappings.will_read(x[following])
        yield rows


def products(x: Tensor, *weights: Tensor) -> List[Tensor]:
    """``x W'`` for each W ``[o, i]``, in one pass over ``x`` ``[n, i]``."""
    made = [x.new_empty(len(x), len(w)) for w in weights]
    for rows in blocks(x):
        for out, w in zip(made, weights):
            torch.mm(x[rows], w.t(), out=out[rows])
    return made


def add_product(out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """``out += x W'``, with ``out`` ``[n, o]``, ``x`` ``[n, i]`` and W ``[o, i]``."""
    for rows in blocks(x):
        out[rows].addmm_(x[rows], weight.t())
    return out


def sums(x: Tensor, *factors: Tensor) -> List[Tensor]:
    """``f' x``, ``[o, i]``, for each f ``[m, o]``, in one pass over the first m rows of ``x`` ``[n, i]``."""
    made: List[Tensor] = []
    for rows in blocks(x):
        for k, f in enumerate(factors):
            if rows.start == 0:
                made.append(f[rows].t().mm(x[rows][: len(f)]))
            elif rows.start < len(f):
                made[k].addmm_(f[rows].t(), x[rows][: len(f) - rows.start])
    return made
