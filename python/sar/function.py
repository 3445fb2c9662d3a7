"""Built-in message and reduce functions, for scripts that run without DGL.

They carry the same fields as DGL's (``name``, ``in_field`` or ``lhs_field``/``rhs_field``, ``msg_field``,
``out_field``), so ``update_all`` takes either.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CopyMessage", "BinaryMessage", "Reduce", "copy_u", "u_mul_e", "sum", "mean"]


@dataclass(frozen=True)
class CopyMessage:
    """A message that is a feature as it is."""

    name: str
    in_field: str
    out_field: str


@dataclass(frozen=True)
class BinaryMessage:
    """A message made of two features, elementwise."""

    name: str
    lhs_field: str
    rhs_field: str
    out_field: str


@dataclass(frozen=True)
class Reduce:
    """A reduction of the messages that arrive at a node."""

    name: str
    msg_field: str
    out_field: str


def copy_u(u: str, out: str) -> CopyMessage:
    """``m[e] = u[source of e]``."""
    return CopyMessage("copy_u", u, out)


def u_mul_e(lhs_field: str, rhs_field: str, out: str) -> BinaryMessage:
    """``m[e] = u[source of e] * w[e]``, feature dimensions aligned from the right, as DGL does."""
    return BinaryMessage("u_mul_e", lhs_field, rhs_field, out)


def sum(msg: str, out: str) -> Reduce:
    """``out[i] = sum of the messages at i``; 0 where none arrive."""
    return Reduce("sum", msg, out)


def mean(msg: str, out: str) -> Reduce:
    """``out[i] = mean of the messages at i``; 0 where none arrive."""
    return Reduce("mean", msg, out)
