"""In-degrees that know of the whole graph whether a node has none.

Layers ask ``(graph.in_degrees() == 0).any()`` and raise. If each worker looked at its own rows alone, one of them could
leave while its peers wait for its rows; so the question is answered for the whole graph, the same on all workers. What
the answer is was agreed when the graph was made, so asking costs nothing and need not be done by all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _abi, _session

if TYPE_CHECKING:
    from .relation import Relation

__all__ = ["Degrees", "agree_on_degrees", "tagged"]


def agree_on_degrees(relations: Sequence[Relation]) -> None:
    """Finds out for each relation whether a node of any worker has no in-edge. Collective."""
    found = torch.tensor([float((r.degrees(out=False) == 0).any()) for r in relations], dtype=torch.float64)
    _session.all_reduce(found, "max", _abi.TRAIN)
    for relation, zero in zip(relations, found.tolist()):
        relation.zero_in_degree = bool(zero)


def tagged(degrees: Tensor, zero_anywhere: bool) -> Tensor:
    """In-degrees of own rows that know the answer for the whole graph."""
    return _tagged(degrees, Degrees, zero_anywhere)


class Degrees(Tensor):
    """int64 ``[num_dst]``: an ordinary tensor of own rows, but ``(degrees == 0).any()`` is about all workers' rows."""

    zero_anywhere: bool

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.__contains__ and _is_zero(args[1]):
                return args[0].zero_anywhere
            result = func(*args, **(kwargs or {}))
        tag = next((a for a in args if isinstance(a, Degrees)), None)
        if func in _EQUALS and tag is not None and any(_is_zero(a) for a in args):
            return _tagged(result, _IsZero, tag.zero_anywhere)
        return result


class _IsZero(Tensor):
    """``degrees == 0``, whose ``any()`` is about all workers' rows."""

    zero_anywhere: bool

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        if func in _ANY and len(args) == 1 and not kwargs:
            return torch.tensor(args[0].zero_anywhere)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


_EQUALS = frozenset([torch.eq, Tensor.eq, Tensor.__eq__])
_ANY = frozenset([torch.any, Tensor.any])


def _tagged(tensor: Tensor, kind: Any, zero: bool) -> Tensor:
    made: Any = tensor.as_subclass(kind)
    made.zero_anywhere = zero
    return made


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0
