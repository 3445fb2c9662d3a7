"""Which dtypes messages take, alone and together."""

from __future__ import annotations

from typing import Optional

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
"""What messages, statistics and their gradients are stored in."""


def joint(a: torch.dtype, b: torch.dtype) -> Optional[torch.dtype]:
    """What operands of two dtypes give: bfloat16 and a wider type the wider one. None for float32 and float64, one of
    which has to be converted first."""
    if a == b:
        return a
    return b if a == torch.bfloat16 else a if b == torch.bfloat16 else None


def refusal(name: str, dtype: torch.dtype) -> str:
    """What is said of a tensor of another dtype than :data:`FLOATS`."""
    if dtype == torch.float16:
        return (
            f"{name} is float16: features may be stored and read so, but sums over edges and their gradients leave its "
            "range, which ends at 65,504; convert it with .bfloat16(), which takes as little memory, or .float()"
        )
    return f"{name} is {dtype}: messages take float32, float64 or bfloat16; convert it, for instance with .float()"
