"""Products of constant rows with weights, some rows at a time.

Rows of features may lie in a file that is larger than memory (``Config.features``). So what reads them goes through
them in as few passes as it can, and while it computes with some rows, a thread reads those that follow. Features in
memory are read in the same blocks, so that a worker gets the same bits whether it maps its features or not.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import mappings

UNIT = 768
"""Blocks are multiples of so many rows: then sums over rows have the bits that one product of all rows gives, since the
libraries of matrix products sum over some hundred rows at a time (192, 256, 384), which divide this."""
MOST = 32 * UNIT
BLOCK_BYTES = 16 << 20


def block_rows(x: Tensor) -> int:
    """Rows of a block: up to :data:`BLOCK_BYTES` of them, but at least :data:`UNIT` rows."""
    units = BLOCK_BYTES // max(1, UNIT * x.shape[1] * x.element_size())
    return min(MOST, UNIT * max(1, units))


def blocks(x: Tensor) -> Iterator[Tuple[slice, Tensor]]:
    """All rows, block by block: which they are, and the rows, valid until the next ones are asked for. A last block of
    less than :data:`UNIT` rows is part of the one before: libraries have other loops for few rows, whose sums have
    other bits."""
    starts = list(range(0, max(1, len(x) - UNIT + 1), block_rows(x)))
    found = [slice(begin, end) for begin, end in zip(starts, [*starts[1:], len(x)])]
    return zip(found, mappings.in_turn([x[rows] for rows in found]))


def products(x: Tensor, *weights: Tensor, own: Optional[int] = None) -> List[Tensor]:
    """``x W'`` for each W ``[o, i]``, in one pass over ``x`` ``[n, i]``. ``own``: the last one is of so many rows."""
    made = [x.new_empty(len(x), len(w)) for w in weights]
    if own is not None:
        made[-1] = x.new_empty(own, len(weights[-1]))
    for at, rows in blocks(x):
        for out, w in zip(made, weights):
            part = out[at]
            torch.mm(rows[: len(part)], w.t(), out=part)
    return made


def sums(x: Tensor, *factors: Tensor) -> List[Tensor]:
    """``f' x``, ``[o, i]``, for each f ``[m, o]``, in one pass over the first m rows of ``x`` ``[n, i]``."""
    made: List[Tensor] = []
    for at, rows in blocks(x):
        for k, f in enumerate(factors):
            if at.start == 0:
                made.append(f[at].t().mm(rows[: len(f)]))
            elif at.start < len(f):
                made[k].addmm_(f[at].t(), rows[: len(f) - at.start])
    return made
