"""Types that rows are stored in, and types that are computed in.

Rows of nodes and edges, and what backward saves of them, may be bfloat16. Sums over edges, softmaxes and statistics are
computed in float32 then, and a result is rounded once, at the end. So it does not depend on how the graph is split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence

if TYPE_CHECKING:  # commands that open partitions do without torch
    import torch
    from torch import Tensor

__all__ = ["computed_in", "rounded", "widened"]


def computed_in(*dtypes: torch.dtype) -> torch.dtype:
    """What is computed in, by the dtypes of operands."""
    import torch

    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = torch.promote_types(found, dtype)
    return torch.float32 if found == torch.bfloat16 else found


def widened(tensors: Sequence[Optional[Tensor]], dtype: torch.dtype) -> List[Optional[Tensor]]:
    """Tensors in the type that is computed in; those of another one are copied."""
    return [None if t is None else t.to(dtype) for t in tensors]


def rounded(found: Tensor, into: Tensor) -> None:
    """Puts what was computed in another type into a tensor, rounded to nearest even."""
    if found.dtype != into.dtype:
        into.copy_(found)
