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

from sar.autograd.expression import Expr, softmax

EPSILON = 1e-12
"""The largest number that a sum may be enlarged by."""


class Reduced(Tensor):
    """``[num_dst, ...]``: what edges were reduced to. Functions of torch read it as it is.

    :ivar op: "max" or "sum"
    :ivar of: what gave the values of the edges then; for a maximum those that were detached
    """

    op: str
    of: Expr

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "numbers") for kind in types):
            return NotImplemented  # its rows are picked by edge
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **kwargs or {})
            if func in _ADD and not kwargs and isinstance(args[1], numbers.Real) and 0 <= float(args[1]) <= EPSILON:
                return _reduced(found, args[0].op, args[0].of)
            return found.as_subclass(Tensor) if isinstance(found, Reduced) else found


_ADD = frozenset([Tensor.add, Tensor.__add__, torch.add])
_SUBTRACT = frozenset([Tensor.sub, Tensor.__sub__, torch.sub])
_POWER = frozenset([Tensor.exp, torch.exp])
_DIVIDE = frozenset([Tensor.div, Tensor.__truediv__, torch.div, torch.true_divide])


def _reduced(value: Tensor, op: str, of: Expr) -> Reduced:
    made = value.as_subclass(Reduced)
    made.op, made.of = op, of
    return made


def remember(value: Tensor, op: str, messages: Any) -> Tensor:
    """What messages were reduced to, which remembers them if that may be a part of a softmax."""
    if not may_be_softmax(op, messages):
        return value
    return _reduced(value, op, messages.detached_from if op == "max" else messages.computation)


def may_be_softmax(op: str, messages: Any) -> bool:
    """Whether messages that are reduced are those of a softmax so far."""
    part = {"max": "detached_from", "sum": "power_of"}[op]
    return getattr(messages, part, None) is not None


def note(func: Any, args: Tuple[Any, ...], made: Any) -> None:
    """Notes of the result of a function of torch, a tensor of edges, how it came about."""
    if func is Tensor.detach and args:
        made.detached_from = args[0].computation
    elif func in _SUBTRACT and len(args) == 2 and _is_reduced(args[1], "max", args[0]):
        made.shifted = args[0].computation
    elif func in _POWER and args:
        made.power_of = getattr(args[0], "shifted", None)


def _is_reduced(picked: Any, op: str, messages: Any) -> bool:
    """Whether rows that were picked by edge are the maxima or sums of messages as they are now."""
    total: Any = getattr(picked, "rows_of", None)
    return total is not None and total.op == op and total.of is getattr(messages, "computation", None)


def divided(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """The softmax that a quotient is; None where it is none."""
    if func not in _DIVIDE or len(args) != 2 or kwargs or not _is_reduced(args[1], "sum", args[0]):
        return None
    logits = getattr(args[0], "power_of", None)
    return None if logits is None else args[0].extended(softmax(args[0].extended(logits).expr))
