"""torch's autocast, under which dense products run in bfloat16.

Functions of this package that multiply by themselves convert their operands as torch would (:func:`lowered`), and run
without it. What is computed later than it is written follows the state in which it was written (:func:`under`).
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .dtypes import FLOATS


class Autocast(NamedTuple):
    """Whether dense products run in another type, and in which."""

    on: bool
    dtype: torch.dtype


def autocast_state() -> Autocast:
    """The state of autocast on CPUs."""
    try:
        return Autocast(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))
    except (TypeError, AttributeError):  # before torch 2.4
        return Autocast(torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype())


def under(state: Autocast) -> Any:
    """A context in which autocast has a state."""
    now = autocast_state()
    if state == now or not (state.on or now.on):
        return contextlib.nullcontext()
    return torch.autocast("cpu", enabled=state.on, dtype=state.dtype)


OFF = Autocast(False, torch.bfloat16)


def product_dtype(x: Tensor, weight: Tensor) -> Optional[torch.dtype]:
    """The type in which rows are multiplied by a weight, of :data:`FLOATS`; None where it would be another, or none."""
    state = autocast_state()
    if state.on and torch.float64 not in (x.dtype, weight.dtype):
        fits = {x.dtype, weight.dtype, state.dtype} <= {*FLOATS}
        return state.dtype if fits else None
    return x.dtype if x.dtype == weight.dtype and x.dtype in FLOATS else None


def lowered(tensor: Any) -> Any:
    """A tensor as autocast gives it to dense products."""
    state = autocast_state()
    casts = state.on and isinstance(tensor, Tensor) and tensor.dtype in (torch.float32, torch.bfloat16)
    return tensor.to(state.dtype) if casts else tensor
