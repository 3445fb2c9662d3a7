"""Products of rows with weights, some rows at a time.

Constant rows of features may lie in a file that is larger than memory (``Config.features``). So what reads them goes
through them in as few passes as it can, and while it computes with some rows, a thread reads those that follow.
Features in memory are read in the same blocks, so that a worker gets the same bits whether it maps its features or not.
Rows that can be computed from others, as batch norm's, are computed for each block and need not exist as a whole.

In bfloat16, torch's products are fast where the processor multiplies it (AVX-512, AMX, or bfloat16 on ARM). On others
torch takes 10 to 100 times as long as in float32. There, rows are widened some at a time, multiplied in float32 and
rounded once, as processors do that have it.
"""

from __future__ import annotations

from functools import cache
from typing import Callable, Iterator, List, Optional, Protocol, Tuple

import torch
from torch import Tensor

from sar._engine import mappings
from sar._engine.storage import computed_in
from sar.autograd.autocast import OFF, under

SOME_BYTES = 1 << 20
"""Of rows that something else is made of: what that takes beside its results is a few times as much."""

WIDENED_BYTES = 1 << 18
"""Of rows that are widened at a time: a few times as much stays in a cache."""


def slices(rows: Tensor, most: int = SOME_BYTES, least: int = 1) -> Iterator[slice]:
    """All rows, in runs of up to ``most`` bytes but of at least so many rows. Of no rows there is one run."""
    count = max(least, most // max(1, rows[:1].numel() * rows.element_size()))
    for begin in range(0, max(1, len(rows)), count):
        yield slice(begin, begin + count)


@cache
def multiplies_bfloat16() -> bool:
    """Whether torch multiplies bfloat16 by instructions of this processor."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _widens(*factors: Tensor) -> bool:
    return all(x.dtype == torch.bfloat16 for x in factors) and not multiplies_bfloat16()


def multiply(x: Tensor, w: Tensor, out: Optional[Tensor] = None) -> Tensor:
    """``x w``: ``[n, i]``, ``[i, o]``; ``out``: where it goes."""
    if not _widens(x, w):
        return torch.mm(x, w, out=out)
    out = x.new_empty(len(x), w.shape[1]) if out is None else out
    with under(OFF):
        wide = w.float()
        for at in slices(x, WIDENED_BYTES):
            out[at] = x[at].float().mm(wide)
    return out


def affine(x: Tensor, w: Tensor, bias: Optional[Tensor]) -> Tensor:
    """``x w + bias``."""
    if bias is None:
        return multiply(x, w)
    return add_product(bias.repeat(len(x), 1), x, w) if _widens(x, w) else torch.addmm(bias, x, w)


def add_product(out: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """``out += x w``. If out is wider than the factors, these are multiplied some rows at a time."""
    if _widens(x, w):
        with under(OFF):
            wide = w.float()
            for at in slices(out, WIDENED_BYTES):
                out[at] = torch.addmm(out[at].float(), x[at].float(), wide)
    elif out.dtype == x.dtype:
        out.addmm_(x, w)
    else:
        for at in slices(out):
            out[at] += x[at].mm(w)
    return out


def over_rows(f: Tensor, x: Tensor) -> Tensor:
    """``f' x``: ``[n, o]``, ``[n, i]``."""
    if not _widens(f, x):
        return f.t().mm(x)
    total = f.new_zeros(f.shape[1], x.shape[1], dtype=torch.float32)
    with under(OFF):
        for at in slices(x, WIDENED_BYTES):
            total.addmm_(f[at].float().t(), x[at].float())
    return total.to(f.dtype)


# ---- in one pass over rows that may lie in a file ----

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


class Factor(Protocol):
    """What stands for rows in products, and gives the same."""

    def products(self, *weights: Tensor) -> List[Tensor]: ...

    def sums(self, *factors: Tensor) -> List[Tensor]: ...


def products(
    x: Tensor,
    *weights: Tensor,
    own: Optional[int] = None,
    made_by: Optional[Rows] = None,
    factor: Optional[Factor] = None,
    at_once: bool = False,
) -> List[Tensor]:
    """``x W'`` for each W ``[o, i]``, in its dtype, in one pass over ``x`` ``[n, i]``. ``own``: the last one is of so
    many rows; ``made_by``: what makes the rows that are multiplied, of rows of x; ``factor``: what stands for x;
    ``at_once``: x, of which nothing is made, lies in memory, and each product is one."""
    if factor is not None:
        return factor.products(*weights)
    if at_once:
        return [multiply(x.to(w.dtype), w.t()) for w in weights]
    made = [w.new_empty(len(x), len(w)) for w in weights]
    if own is not None:
        made[-1] = made[-1].new_empty(own, len(weights[-1]))
    for at, rows in blocks(x, made_by):
        rows = rows.to(weights[0].dtype)
        for out, w in zip(made, weights):
            part = out[at]
            multiply(rows[: len(part)], w.t(), out=part)
    return made


def sums(
    x: Tensor,
    *factors: Tensor,
    made_by: Optional[Rows] = None,
    factor: Optional[Factor] = None,
    at_once: bool = False,
) -> List[Tensor]:
    """``f' x``, ``[o, i]``, for each f ``[m, o]``, in one pass over the first m rows of ``x`` ``[n, i]``. Of factors of
    bfloat16 it is in float32, but for ``at_once``. ``made_by``, ``factor`` and ``at_once`` as for :func:`products`."""
    if factor is not None:
        return factor.sums(*factors)
    if at_once:
        return [over_rows(f, x[: len(f)].to(f.dtype)) for f in factors]
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
