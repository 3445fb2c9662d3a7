"""What ``update_all`` is asked to do, read off the objects of ``dgl.function`` or ``sar.function``.

They are known by their fields, so DGL need not be there.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from .. import _abi

SUPPORTED = (
    "update_all runs the messages copy_u and u_mul_e with the reducers sum and mean (of dgl.function or sar.function)"
)


class Step(NamedTuple):
    """One aggregation: ``reduce over in-edges of u_field (* e_field)`` into ``out_field``."""

    u_field: str
    e_field: Optional[str]
    reduce: str
    out_field: str


def parse(message: Any, reduce: Any, apply_node: Any = None) -> Step:
    """Reads the fields of a message and a reduce function.

    :raises NotImplementedError: it is another function
    :raises ValueError: the reducer reads another field than the message writes
    """
    if apply_node is not None:
        raise NotImplementedError(f"{SUPPORTED}; apply_node_func is not run: apply it to dstdata afterwards")
    name = getattr(message, "name", None)
    if name == "copy_u":
        u_field, e_field = message.in_field, None
    elif name == "u_mul_e":
        u_field, e_field = message.lhs_field, message.rhs_field
    elif name == "e_mul_u":
        u_field, e_field = message.rhs_field, message.lhs_field
    else:
        raise NotImplementedError(f"{SUPPORTED}, not the message {_called(message)}")
    reducer = getattr(reduce, "name", None)
    if reducer not in _abi.REDUCERS:
        raise NotImplementedError(f"{SUPPORTED}, not the reducer {_called(reduce)}")
    if reduce.msg_field != message.out_field:
        raise ValueError(
            f"the message writes field {message.out_field!r}, but the reducer reads {reduce.msg_field!r}: "
            "give both the same name"
        )
    return Step(u_field, e_field, reducer, reduce.out_field)


def _called(function: Any) -> str:
    return str(getattr(function, "name", None) or getattr(function, "__qualname__", None) or repr(function))
