"""Built-in message and reduce functions, for scripts that run without DGL.

They carry the names and fields of DGL's (``name``, ``target`` and ``in_field``; ``binary_op``, ``lhs``, ``rhs``,
``lhs_field`` and ``rhs_field``; ``msg_field``; ``out_field``), so ``update_all`` and ``apply_edges`` take either.

Messages: :func:`copy_u`, :func:`copy_e`, and ``{u,v,e}_{add,sub,mul,div,dot}_{u,v,e}`` for every pair of different
sides. ``u`` is the source of an edge, ``v`` its destination, ``e`` the edge itself. Reducers: :func:`sum`,
:func:`mean`, :func:`max`, :func:`min`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

TARGETS = {"u": 0, "v": 1, "e": 2}
"""Numbers of the sides, as in DGL's ``TargetCode``."""


@dataclass(frozen=True)
class CopyMessage:
    """A message that is a feature as it is: ``m[e] = feature of the side``."""

    target: int
    in_field: str
    out_field: str

    @property
    def name(self) -> str:
        """``"copy_u"`` or ``"copy_e"``."""
        return f"copy_{'uve'[self.target]}"


@dataclass(frozen=True)
class BinaryMessage:
    """A message made of two features, elementwise: ``m[e] = lhs op rhs``."""

    binary_op: str
    lhs: int
    rhs: int
    lhs_field: str
    rhs_field: str
    out_field: str

    @property
    def name(self) -> str:
        """As in ``"u_mul_e"``."""
        return f"{'uve'[self.lhs]}_{self.binary_op}_{'uve'[self.rhs]}"


@dataclass(frozen=True)
class Reduce:
    """A reduction of the messages that arrive at a node: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``."""

    name: str
    msg_field: str
    out_field: str


def copy_u(u: str, out: str) -> CopyMessage:
    """``m[e] = x[source of e]``: x is column ``u`` of the sources, ``[num_src, ...]``; m is named ``out``."""
    return CopyMessage(TARGETS["u"], u, out)


def copy_e(e: str, out: str) -> CopyMessage:
    """``m[e] = x[e]``: x is column ``e`` of the edges, ``[num_edges, ...]``; m is named ``out``."""
    return CopyMessage(TARGETS["e"], e, out)


def sum(msg: str, out: str) -> Reduce:
    """``y[i] = sum of the messages m at i``, ``[num_dst, ...]``; 0 where none arrive."""
    return Reduce("sum", msg, out)


def mean(msg: str, out: str) -> Reduce:
    """``y[i] = mean of the messages m at i``, ``[num_dst, ...]``; 0 where none arrive."""
    return Reduce("mean", msg, out)


def max(msg: str, out: str) -> Reduce:
    """``y[i] = largest of the messages m at i``, elementwise, ``[num_dst, ...]``; 0 where none arrive.

    Of equal messages the gradient goes to the first, in the order of edges.
    """
    return Reduce("max", msg, out)


def min(msg: str, out: str) -> Reduce:
    """``y[i] = smallest of the messages m at i``, elementwise, ``[num_dst, ...]``; 0 where none arrive.

    Of equal messages the gradient goes to the first, in the order of edges.
    """
    return Reduce("min", msg, out)


_SIDES = {
    "u": "x[source of e] (column {0} of the sources, [num_src, ...])",
    "v": "x[destination of e] (column {0} of the destinations, [num_dst, ...])",
    "e": "x[e] (column {0} of the edges, [num_edges, ...])",
}
_VERBS = {
    "add": "left + right",
    "sub": "left - right",
    "mul": "left * right",
    "div": "left / right",
    "dot": "sum over the last dimension of left * right, which stays as 1",
}


def _binary(name: str) -> Callable[[str, str, str], BinaryMessage]:
    lhs, op, rhs = name.split("_")

    def make(lhs_field: str, rhs_field: str, out: str) -> BinaryMessage:
        return BinaryMessage(op, TARGETS[lhs], TARGETS[rhs], lhs_field, rhs_field, out)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""``m[e] = {_VERBS[op]}``, feature dimensions aligned from the right, as DGL does.

    - left is {_SIDES[lhs].format("``lhs_field``")}
    - right is {_SIDES[rhs].format("``rhs_field``")}
    - m is named ``out``

    ``update_all`` and ``apply_edges`` raise ValueError where the shapes do not broadcast.
    """
    return make


u_add_v, u_add_e = _binary("u_add_v"), _binary("u_add_e")
u_sub_v, u_sub_e = _binary("u_sub_v"), _binary("u_sub_e")
u_mul_v, u_mul_e = _binary("u_mul_v"), _binary("u_mul_e")
u_div_v, u_div_e = _binary("u_div_v"), _binary("u_div_e")
u_dot_v, u_dot_e = _binary("u_dot_v"), _binary("u_dot_e")

v_add_u, v_add_e = _binary("v_add_u"), _binary("v_add_e")
v_sub_u, v_sub_e = _binary("v_sub_u"), _binary("v_sub_e")
v_mul_u, v_mul_e = _binary("v_mul_u"), _binary("v_mul_e")
v_div_u, v_div_e = _binary("v_div_u"), _binary("v_div_e")
v_dot_u, v_dot_e = _binary("v_dot_u"), _binary("v_dot_e")

e_add_u, e_add_v = _binary("e_add_u"), _binary("e_add_v")
e_sub_u, e_sub_v = _binary("e_sub_u"), _binary("e_sub_v")
e_mul_u, e_mul_v = _binary("e_mul_u"), _binary("e_mul_v")
e_div_u, e_div_v = _binary("e_div_u"), _binary("e_div_v")
e_dot_u, e_dot_v = _binary("e_dot_u"), _binary("e_dot_v")

__all__ = ["BinaryMessage", "CopyMessage", "Reduce", "copy_e", "copy_u", "max", "mean", "min", "sum"]
__all__ += [f"{a}_{op}_{b}" for a in TARGETS for op in _VERBS for b in TARGETS if a != b]
