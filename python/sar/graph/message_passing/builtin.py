"""Parses the built-in messages and reducers of ``dgl.function`` and ``sar.function``.

They are known by their fields, so DGL need not be there.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Optional, Tuple

REDUCERS = ("sum", "mean", "max", "min")
_BINARY = re.compile(r"([uve])_(add|sub|mul|div|dot)_([uve])")
_MESSAGES = "copy_u, copy_e and {u,v,e}_{add,sub,mul,div,dot}_{u,v,e}"


class Term(NamedTuple):
    """A column of one side: "u" the source, "v" the destination, "e" the edge."""

    side: str
    field: str


class Message(NamedTuple):
    """A built-in message: one term as it is (``op`` is None), or two and what is done to them."""

    name: str
    op: Optional[str]
    terms: Tuple[Term, ...]
    out_field: str


class Reducer(NamedTuple):
    """A built-in reducer, one of :data:`REDUCERS`."""

    op: str
    msg_field: str
    out_field: str


def message(function: Any) -> Optional[Message]:
    """The built-in message that an object stands for; ``None`` for a Python function.

    :raises NotImplementedError: a built-in that is unknown
    :raises TypeError: neither a built-in nor something that can be called
    """
    name = getattr(function, "name", None)
    out = getattr(function, "out_field", None)
    if isinstance(name, str) and isinstance(out, str):
        if name in ("copy_u", "copy_e") and hasattr(function, "in_field"):
            return Message(name, None, (Term(name[-1], function.in_field),), out)
        parts = _BINARY.fullmatch(name)
        if parts is not None and hasattr(function, "lhs_field"):
            lhs, op, rhs = parts.groups()
            return Message(name, op, (Term(lhs, function.lhs_field), Term(rhs, function.rhs_field)), out)
        raise NotImplementedError(f"the message {name} is unknown; there are {_MESSAGES}, or write a Python function")
    if callable(function):
        return None
    raise TypeError(f"the message must be a function of dgl.function, of sar.function, or of edges, not {function!r}")


def reducer(function: Any) -> Optional[Reducer]:
    """The built-in reducer that an object stands for; ``None`` for a Python function.

    :raises NotImplementedError: a built-in that is unknown
    :raises TypeError: neither a built-in nor something that can be called
    """
    name = getattr(function, "name", None)
    if isinstance(name, str) and hasattr(function, "msg_field"):
        if name not in REDUCERS:
            known = ", ".join(REDUCERS)
            raise NotImplementedError(f"the reducer {name} is unknown; there are {known}, or write a Python function")
        return Reducer(name, function.msg_field, function.out_field)
    if callable(function):
        return None
    raise TypeError(f"the reducer must be a function of dgl.function, of sar.function, or of nodes, not {function!r}")


def check_pair(sent: Message, received: Reducer) -> None:
    """Raises ValueError where the reducer reads another field than the message writes."""
    if received.msg_field != sent.out_field:
        raise ValueError(
            f"the message writes field {sent.out_field!r}, but the reducer reads {received.msg_field!r}: "
            "give both the same name"
        )


def called(function: Any) -> str:
    """How errors call a function."""
    return str(getattr(function, "name", None) or getattr(function, "__qualname__", None) or repr(function))
