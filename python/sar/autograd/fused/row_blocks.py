"""Products of rows with weights, some rows at a time.

Constant rows of features may lie in a file that is larger than memory (``Config.features``). So what reads them goes
through them in as few passes as it can, and while it computes with some rows, a thread reads those that follow.
Features in memory are read in the same blocks, so that a worker gets the same bits whether it maps its features or not.
Rows that can be computed from others, as batch norm's, are computed for each block and need not exist as a whole.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional, Tuple

from torch import Tensor

from sar._engine import mappings
from sar._engine.storage import computed_in

from .dense import multiply, over_rows

UNIT = 768
"""Blocks are multiples of so many rows: then sums over rows have the bits that one product of all rows gives, since the
libraries of matrix products sum over some hundred rows at a time (192, 256, 384), which divide this."""
MOST = 32 * UNIT
BLOCK_BYTES = 16 << 20
MADE_BYTES = 4 << 20
"""Of rows that are made for each block: they should still be in a cache when they are multiplied."""


def block_rows(x: Tensor, most: int = BLOCK_BYTES) -> int:
    """Rows of a block: up to ``most`` bytes of them, but at least :data:`UNIT` rows."""
    units = most // max(1, UNIT * x.shape[1] * x.element_size())
    return min(MOST, UNIT * max(1, units))


Rows = Callable[[Tensor, int], Tensor]
"""Makes rows of those of another tensor, some at a time; given the number of the first as well."""


def blocks(x: Tensor, made_by: Optional[Rows] = None) -> Iterator[Tuple[slice, Tensor]]:
    """All rows, block by block: which they are, and the rows, valid until the next ones are asked for. A last block of
    less than :data:`UNIT` rows is part of the one before: libraries have other loops for few rows, whose sums have
    other bits.

    :param made_by: what makes the rows, of those of x
    """
    step = block_rows(x, MADE_BYTES if made_by else BLOCK_BYTES)
    starts = list(range(0, max(1, len(x) - UNIT + 1), step))
    found = [slice(begin, end) for begin, end in zip(starts, [*starts[1:], len(x)])]
    rows = mappings.in_turn([x[at] for at in found])
    return zip(found, map(made_by, rows, (at.start for at in found)) if made_by else rows)


def products(x: Tensor, *weights: Tensor, own: Optional[int] = None, made_by: Optional[Rows] = None) -> List[Tensor]:
    """``x W'`` for each W ``[o, i]``, in its dtype, in one pass over ``x`` ``[n, i]``. ``own``: the last one is of so
    many rows; ``made_by``: what makes the rows that are multiplied, of rows of x."""
    made = [w.new_empty(len(x), len(w)) for w in weights]
    if own is not None:
        made[-1] = made[-1].new_empty(own, len(weights[-1]))
    for at, rows in blocks(x, made_by):
        rows = rows.to(weights[0].dtype)
        for out, w in zip(made, weights):
            part = out[at]
            multiply(rows[: len(part)], w.t(), out=part)
    return made


def sums(x: Tensor, *factors: Tensor, made_by: Optional[Rows] = None) -> List[Tensor]:
    """``f' x``, ``[o, i]``, for each f ``[m, o]``, in one pass over the first m rows of ``x`` ``[n, i]``. Of factors of
    bfloat16 it is in float32.
    ``made_by`` as for :func:`products`."""
    made: List[Tensor] = []
    for at, rows in blocks(x, made_by):
        rows = rows.to(factors[0].dtype)
        for k, f in enumerate(factors):
            if at.start == 0:
                found = over_rows(f[at], rows[: len(f)])
                made.append(found.to(computed_in(found.dtype)))
            elif at.start < len(f) and f.dtype == made[k].dtype:
                made[k].addmm_(f[at].t(), rows[: len(f) - at.start])
            elif at.start < len(f):
                made[k] += over_rows(f[at], rows[: len(f) - at.start])
    return made
