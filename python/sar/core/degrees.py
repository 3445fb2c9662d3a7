"""Degrees of nodes as scripts for the Python package and DGL's layers expect them of a graph split over workers.

DGL's layers ask ``(graph.in_degrees() == 0).any()`` and raise where a node has no in-edge. The Python package gave such
nodes the degree 1, so layers ran on graphs that have some, and scripts could divide by degrees as they are. Here the
numbers are true, since sums such as ``degrees + 1`` would be wrong otherwise, and both hold all the same: the question
is answered with no, and a quotient takes a degree of 0 for 1. Such a node gets what layers give it with
``allow_zero_in_degree=True``.

Whether there is such a node anywhere is agreed when a graph is made, for layers that want to know it of all workers.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _abi, _session
from .._log import log_once

if TYPE_CHECKING:
    from .relation import Relation

__all__ = ["Degrees", "agree_on_degrees", "note_zero_in_degree", "tagged"]


def agree_on_degrees(relations: Sequence[Relation]) -> None:
    """Finds out for each relation whether a node of any worker has no in-edge. Collective."""
    lonely = [(r.degrees(out=False).as_subclass(Tensor) == 0).any() for r in relations]
    found = torch.tensor([float(any_) for any_ in lonely], dtype=torch.float64)
    _session.all_reduce(found, "max", _abi.TRAIN)
    for relation, zero in zip(relations, found.tolist()):
        relation.zero_in_degree = bool(zero)


def tagged(degrees: Tensor, zero_anywhere: bool) -> Tensor:
    """Degrees of own rows; ``zero_anywhere``: whether a node of any worker has the degree 0."""
    made: Any = degrees.as_subclass(Degrees)
    made.zero_anywhere = zero_anywhere
    return made


class Degrees(Tensor):
    """int64 ``[n]``: an ordinary tensor, but ``(degrees == 0).any()`` is ``False``, as is ``0 in degrees``, and where
    one divides by it, or takes a negative power, a 0 counts as 1, also after a change of dtype or shape."""

    zero_anywhere: bool

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        tag = next((a for a in args if isinstance(a, Degrees)), None)
        with torch._C.DisableTorchFunctionSubclass():
            if name == "__contains__" and _is_zero(args[1]):
                note_zero_in_degree(args[0].zero_anywhere)
                return False
            if _divides(name, args, kwargs):
                args = tuple(_at_least_one(a) if _is_divisor(name, n, a) else a for n, a in enumerate(args))
                kwargs = {k: _at_least_one(a) if isinstance(a, Degrees) else a for k, a in kwargs.items()}
            result = func(*args, **kwargs)
        if tag is None or not isinstance(result, Tensor):
            return result
        if name in _KEEP and result.dim() > 0:
            return tagged(result, tag.zero_anywhere)
        if name in ("eq", "__eq__") and any(_is_zero(a) for a in args):
            made: Any = result.as_subclass(_IsZero)
            made.degrees = tag
            return made
        return result

    def __deepcopy__(self, memo: Dict[int, Any]) -> Tensor:
        return memo.setdefault(id(self), tagged(copy.deepcopy(_plain(self), memo), self.zero_anywhere))


class _IsZero(Tensor):
    """``degrees == 0``, whose ``any()`` is false."""

    degrees: Degrees

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        if getattr(func, "__name__", "") == "any" and len(args) == 1 and not kwargs:
            note_zero_in_degree(args[0].degrees.zero_anywhere)
            return torch.tensor(False)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: Dict[int, Any]) -> Tensor:
        return memo.setdefault(id(self), copy.deepcopy(_plain(self), memo))


def _plain(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(Tensor)


_KEEP = frozenset(
    ["float", "double", "half", "bfloat16", "long", "int", "to", "type", "view", "reshape", "unsqueeze", "clone"]
    + ["detach", "contiguous", "cpu", "sqrt", "__getitem__", "squeeze", "flatten", "view_as", "reshape_as", "expand"]
    + ["expand_as", "broadcast_to", "repeat", "t", "transpose", "permute"]
)
"""What gives degrees again: other dtypes and shapes, some of them, and roots, which are 0 where they are."""

_QUOTIENTS = frozenset(["div", "divide", "true_divide", "__truediv__", "__div__", "floor_divide", "__floordiv__"])
_INVERSES = frozenset(["reciprocal", "rsqrt", "__rdiv__", "__rtruediv__", "__rfloordiv__"])
_POWERS = frozenset(["pow", "__pow__", "float_power"])


def _divides(name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    if name in _POWERS:
        exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
        return isinstance(exponent, (int, float)) and exponent < 0
    return name in _QUOTIENTS or name in _INVERSES


def _is_divisor(name: str, place: int, value: Any) -> bool:
    """Whether an argument of a function that divides is what it divides by."""
    return isinstance(value, Degrees) and place == (1 if name in _QUOTIENTS else 0)


def _at_least_one(degrees: Tensor) -> Tensor:
    plain = degrees.as_subclass(Tensor)
    return torch.where(plain == 0, torch.ones_like(plain), plain)


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0


def note_zero_in_degree(anywhere: Optional[bool]) -> None:
    """Says once that layers run although nodes have no in-edge, if a node of any worker has none."""
    if anywhere:
        log_once(
            "degree 0",
            "some nodes have no in-edge: layers that would refuse them give what allow_zero_in_degree=True gives "
            "(`sar partition --self-loops` or dgl.add_self_loop give every node an edge to itself)",
        )
