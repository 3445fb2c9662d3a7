"""Types that rows are stored in, and types that are computed in.

Rows of nodes and edges, and what backward saves of them, may be bfloat16. Sums over edges, softmaxes and statistics are
computed in float32 then, and a result is rounded once, at the end. So it does not depend on how the graph is split.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, List, Optional, Sequence

from sar.config import Config

from .library import calls

if TYPE_CHECKING:  # commands that open partitions do without torch
    import torch
    from torch import Tensor


def computed_in(*dtypes: torch.dtype) -> torch.dtype:
    """What is computed in, by the dtypes of operands."""
    import torch

    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = torch.promote_types(found, dtype)
    return torch.float32 if found == torch.bfloat16 else found


def name_of(tensor: Tensor) -> str:
    """How programs call the storage of an operand; empty where it is of the type that is computed in."""
    import torch

    return "bfloat16" if tensor.dtype == torch.bfloat16 else ""


def travels_as(tensor: Tensor) -> str:
    """How rows of sources are stored when messages read them (:attr:`sar.Config.wire_dtype`).

    :raises ValueError: ``Config.wire_dtype`` is none of its values
    """
    import torch

    if Config.wire_dtype not in (None, "bfloat16"):
        raise ValueError(f"sar.Config.wire_dtype is {Config.wire_dtype!r}: it is 'bfloat16', or None")
    return Config.wire_dtype or "" if tensor.dtype == torch.float32 else name_of(tensor)


def stored(tensor: Tensor, storage: str) -> Tensor:
    """A tensor as a program has it; one of ``"bfloat16"`` is rounded."""
    import torch

    return tensor.to(torch.bfloat16) if storage else tensor


def widened(tensors: Sequence[Optional[Tensor]], dtype: torch.dtype) -> List[Optional[Tensor]]:
    """Tensors of the type that is computed in, and those of bfloat16 as they are; others are copied."""
    return [t if t is None or name_of(t) else t.to(dtype) for t in tensors]


_room_for_next = calls("sar_pool_room")


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor for a result or a gradient that the engine computes.

    One in bfloat16 has room behind it, so that the float32 that is rounded to it lies there and needs no memory of its
    own.
    """
    import torch

    if dtype == torch.bfloat16:
        _room_for_next(2 * math.prod(shape))
    return torch.empty(tuple(shape), dtype=dtype)
