"""Softmaxes that are spelled out, as ``torch_geometric.utils.softmax`` spells them.

``exp(x - max)`` is divided by its sum, maxima and sums being those of the edges of each node, picked by edge again. The
engine has that in one piece, together with what it is used in. So tensors remember how they came about, step by step;
where a step is missing, or another one is in between, nothing is remembered and every step runs as it is written.
"""

from __future__ import annotations

import numbers
from typing import Any, Dict, Tuple

import torch
from torch import Tensor

from sar.autograd.expression import softmax

EPSILON = 1e-12
"""The largest number that a sum may be enlarged by."""


class Reduced(Tensor):
    """``[num_dst, ...]``: what edges were reduced to. Functions of torch read it as it is.

    :ivar op: "max" or "sum"
    :ivar messages: the tensor of edges, and what gave its values then
    """

    op: str
    messages: Tuple[Any, Any]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "numbers") for kind in types):
            return NotImplemented  # its rows are picked by edge
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **kwargs or {})
            if func in _ADD and not kwargs and isinstance(args[1], numbers.Real) and 0 <= float(args[1]) <= EPSILON:
                return _of(found, args[0].op, args[0].messages)
            return found.as_subclass(Tensor) if isinstance(found, Reduced) else found


_ADD = frozenset([Tensor.add, Tensor.__add__, torch.add])
_SUBTRACT = frozenset([Tensor.sub, Tensor.__sub__, torch.sub])
_POWER = frozenset([Tensor.exp, torch.exp])
_DIVIDE = frozenset([Tensor.div, Tensor.__truediv__, torch.div, torch.true_divide])


def _of(value: Tensor, op: str, messages: Tuple[Any, Any]) -> Reduced:
    made = value.as_subclass(Reduced)
    made.op, made.messages = op, messages
    return made


def remember(value: Tensor, op: str, messages: Any) -> Tensor:
    """What messages were reduced to, which remembers them if that may be a part of a softmax."""
    return _of(value, op, (messages, messages.computation)) if may_be_softmax(op, messages) else value


def may_be_softmax(op: str, messages: Any) -> bool:
    """Whether messages that are reduced are those of a softmax so far."""
    part = {"max": "detached_from", "sum": "power_of"}[op]
    return getattr(messages, part, None) is not None


def note(func: Any, args: Tuple[Any, ...], made: Any) -> None:
    """Notes of the result of a function of torch, a tensor of edges, how it came about."""
    if func is Tensor.detach and args:
        made.detached_from = args[0], args[0].computation
    elif func in _SUBTRACT and len(args) == 2:
        of, computation = _maximum_of(args[1])
        if of is args[0] and computation is args[0].computation:
            made.shifted = of._same()
    elif func in _POWER and args:
        made.power_of = getattr(args[0], "shifted", None)


def _maximum_of(picked: Any) -> Tuple[Any, Any]:
    """The tensor whose maxima these are, and what gave its values then."""
    total: Any = getattr(picked, "rows_of", None)
    known = total is not None and total.op == "max" and total.messages[0].computation is total.messages[1]
    return total.messages[0].detached_from if known else (None, None)


def divided(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """The softmax that a quotient is; None where it is none."""
    if func not in _DIVIDE or len(args) != 2 or kwargs:
        return None
    powers: Any = args[0]
    total: Any = getattr(args[1], "rows_of", None)
    if total is None or total.op != "sum" or total.messages[0] is not powers:
        return None
    if powers.computation is not total.messages[1]:
        return None
    return powers.extended(softmax(powers.power_of.expr))
