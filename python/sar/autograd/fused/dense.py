"""Products with weights, and of columns with columns.

They are torch's. In bfloat16 those are fast where the processor multiplies it (AVX-512, AMX, or bfloat16 on ARM). On
others torch takes 10 to 100 times as long as in float32. There, rows are widened some at a time, multiplied in float32
and rounded once, as processors do that have it.
"""

from __future__ import annotations

from functools import cache
from typing import Iterator, Optional

import torch
from torch import Tensor

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
