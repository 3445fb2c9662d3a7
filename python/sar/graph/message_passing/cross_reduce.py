"""Combines the results that a node type gets over several relations."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Union

import torch
from torch import Tensor

CROSS_REDUCERS = ("sum", "mean", "max", "min", "stack")


class Part(NamedTuple):
    """What one relation gives a node type: ``number`` of the relation, ``results`` by name."""

    number: int
    results: Dict[str, Tensor]


def check_cross_reducer(reducer: Any) -> None:
    """Raises ValueError if it is neither a function nor one of :data:`CROSS_REDUCERS`."""
    if not callable(reducer) and reducer not in CROSS_REDUCERS:
        known = ", ".join(map(repr, CROSS_REDUCERS))
        raise ValueError(f"the cross reducer {reducer!r} is unknown; there are {known}, or give a function of a list")


def merged(parts: Sequence[Part], reducer: Union[str, Callable[[List[Tensor]], Tensor]]) -> Dict[str, Tensor]:
    """One result for each name that any relation has: ``[num_dst, ...]``, for "stack" ``[num_dst, relations, ...]``.

    :param parts: in the order of the caller. "stack" goes by the number of the relation instead
    """
    if len(parts) == 1 and reducer != "stack":
        return parts[0].results
    if reducer == "stack":
        parts = sorted(parts, key=lambda part: part.number)
    names = dict.fromkeys(name for part in parts for name in part.results)
    return {name: _merge([part.results[name] for part in parts if name in part.results], reducer) for name in names}


def _merge(tensors: List[Tensor], reducer: Union[str, Callable[[List[Tensor]], Tensor]]) -> Tensor:
    if not isinstance(reducer, str):
        return reducer(tensors)
    if reducer == "stack":
        return torch.stack(tensors, 1)
    if len(tensors) == 1:
        return tensors[0]
    stacked = torch.stack(tensors)
    if reducer in ("max", "min"):
        out: Tensor = getattr(stacked, reducer)(0).values
        return out
    return stacked.sum(0) if reducer == "sum" else stacked.mean(0)


def without_messages(out: Tensor, degrees: Tensor, largest: bool) -> Tensor:
    """A maximum or minimum with the worst value, in place of 0, in rows that no message came to, so that it loses
    against what comes over other relations."""
    if not out.is_floating_point():
        return out
    none = (degrees == 0).view(-1, *(1,) * (out.dim() - 1))
    return out.masked_fill(none, -float("inf") if largest else float("inf"))
