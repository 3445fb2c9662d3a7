"""Edge expressions: messages as lazy expressions, evaluated by the engine.

An :class:`Expr` says how the message of an edge follows from rows of its source ("u"), its destination ("v"), itself
("e") and from tensors that all edges share. Nothing is computed until :func:`evaluate`, which runs the whole
expression in the engine, block of edges by block of edges, in forward and again in backward::

    score = unary("leaky_relu", binary("add", load("u", el), load("v", er)), 0.2)
    message = binary("mul", load("u", h), softmax(score))
    out = evaluate(relation, message, "sum")

Feature shapes leave out the first dimension (nodes or edges) and broadcast as DGL's do: aligned from the right.
"""

from __future__ import annotations

from math import prod
from typing import Dict, Optional, Sequence, Union

import torch
from torch import Tensor

from . import program
from .dtypes import FLOATS, joint, refusal
from .types import Expr, Relation

BINARY = ("add", "sub", "mul", "div", "dot")
"""Operations of two expressions. ``dot`` sums the last dimension of the product and keeps it as 1."""

UNARY: Dict[str, str] = {
    "neg": "-a",
    "relu": "max(a, 0)",
    "leaky_relu": "a where a > 0, else alpha * a",
    "elu": "a where a > 0, else alpha * (exp(a) - 1)",
    "exp": "e to the power of a",
    "log": "natural logarithm",
    "sqrt": "square root",
    "sigmoid": "1 / (1 + exp(-a))",
    "tanh": "hyperbolic tangent",
    "softplus": "log(1 + exp(a))",
    "abs": "absolute value",
    "reciprocal": "1 / a",
    "scale": "a * alpha",
    "shift": "a + alpha",
    "rsub": "alpha - a",
    "pow": "a to the power of alpha",
    "clamp_min": "max(a, alpha)",
    "clamp_max": "min(a, alpha)",
    "clamp_min_open": "max(a, alpha); the gradient at alpha is 0",
    "clamp_max_open": "min(a, alpha); the gradient at alpha is 0",
}
"""Operations of one expression and, for some, the number ``alpha``."""

REDUCERS = ("sum", "mean", "max", "min", "max_shared", "min_shared")
SIDES = {"u": "source nodes", "v": "destination nodes", "e": "edges"}


def load(side: str, tensor: Tensor) -> Expr:
    """Rows of a tensor, picked by the edge.

    :param side: ``"u"``: ``[num_src, ...]``, the row of the source; ``"v"``: ``[num_dst, ...]``, of the destination;
        ``"e"``: ``[num_edges, ...]`` in the users' order of edges
    :param tensor: float32, float64 or bfloat16, on the CPU
    :raises TypeError: dtype or device
    :raises ValueError: the side, or a tensor without dimensions
    """
    if side not in SIDES:
        raise ValueError(f"side {side!r} is unknown: give 'u' (source), 'v' (destination) or 'e' (edge)")
    _check_tensor(tensor, f"the tensor of side {side!r}")
    if tensor.dim() == 0:
        raise ValueError(f"the tensor of side {side!r} has no dimensions: the first one counts {SIDES[side]}")
    return Expr("load", tensor.shape[1:], tensor.dtype, tensor=tensor, side=side)


def param(tensor: Tensor, dtype: Optional[torch.dtype] = None) -> Expr:
    """A tensor that is the same for all edges; its whole shape is the feature shape.

    :param dtype: what it counts as where it is one number, which does not change the dtype of other operands
    :raises TypeError: dtype or device
    """
    _check_tensor(tensor, "the parameter")
    return Expr("param", tensor.shape, dtype or tensor.dtype, tensor=tensor, side="p")


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """``a op b`` with DGL's broadcasting; ``op`` is one of :data:`BINARY`.

    :raises ValueError: the operation is unknown, or the shapes do not broadcast
    :raises TypeError: dtypes differ
    """
    if op not in BINARY:
        raise ValueError(f"operation {op!r} is unknown: give one of {', '.join(BINARY)}")
    dtype = joint(a.dtype, b.dtype)
    if dtype is None:
        raise TypeError(f"{op} of {a.dtype} and {b.dtype}: convert one of them, they must be the same")
    if op == "dot" and (not a.shape or not b.shape or a.shape[-1] != b.shape[-1]):
        raise ValueError(f"dot of feature shapes {a.shape} and {b.shape}: the last dimensions must be the same")
    try:
        shape = a.shape if a.shape == b.shape else tuple(torch.broadcast_shapes(a.shape, b.shape))
    except RuntimeError:
        raise ValueError(
            f"{op} of feature shapes {a.shape} and {b.shape}: they are aligned from the right, and each pair of "
            "dimensions must be equal or have a 1"
        ) from None
    return Expr(op, (*shape[:-1], 1) if op == "dot" else shape, dtype, (a, b))


def unary(op: str, a: Expr, alpha: float = 0.0) -> Expr:
    """``op(a)`` element by element; ``op`` is one of :data:`UNARY`.

    :raises ValueError: the operation is unknown
    """
    if op not in UNARY:
        raise ValueError(f"operation {op!r} is unknown: give one of {', '.join(UNARY)}")
    return Expr(op, a.shape, a.dtype, (a,), float(alpha))


def total(a: Expr, dims: Union[int, Sequence[int], None] = None, keepdim: bool = False) -> Expr:
    """The sum over feature dimensions; dimension 0 is the first feature dimension. ``None`` sums all.

    :raises IndexError: no such dimension
    """
    n = len(a.shape)
    wanted = range(n) if dims is None else [dims] if isinstance(dims, int) else dims
    found = set()
    for d in wanted:
        if not -n <= d < n:
            raise IndexError(f"dimension {d} of the feature shape {a.shape} does not exist")
        found.add(d % n)
    kept = tuple(1 if d in found else size for d, size in enumerate(a.shape))
    out = Expr("total", kept, a.dtype, (a,), dims=tuple(sorted(found)))
    return out if keepdim else reshape(out, [size for d, size in enumerate(a.shape) if d not in found])


def reshape(a: Expr, shape: Sequence[int]) -> Expr:
    """Other feature dimensions with as many elements; one of them may be -1.

    :raises ValueError: the number of elements differs
    """
    made, count = list(shape), prod(a.shape)
    known = prod(size for size in made if size != -1)
    if -1 in made and known:
        made[made.index(-1)] = count // known
    if min(made, default=0) < 0 or prod(made) != count:
        raise ValueError(f"a feature shape of {a.shape} cannot become {tuple(shape)}")
    return a if tuple(made) == a.shape else Expr("reshape", made, a.dtype, (a,))


def as_type(a: Expr, dtype: torch.dtype) -> Expr:
    """The same values in another dtype, to which the result of the whole expression is rounded."""
    return a if a.dtype == dtype else Expr("reshape", a.shape, dtype, (a,))


def softmax(a: Expr) -> Expr:
    """The softmax over the in-edges of each destination, for each element of the feature shape on its own."""
    return Expr("softmax", a.shape, a.dtype, (a,))


def dropout(a: Expr, p: float, seed: int) -> Expr:
    """Zeroes elements with probability ``p`` and divides the others by ``1 - p``.

    The mask depends only on the seed, the edge and the element, so it is the same in forward and backward. If the
    partition has ``orig_id`` of edges, it is also the same for any number of workers; otherwise edges are identified by
    rank and position.

    :param seed: 0 .. 2**64 - 1; the same on all ranks
    :raises ValueError: p is not in [0, 1]
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout has probability {p}: it must be between 0 and 1")
    return a if p == 0.0 else Expr("dropout", a.shape, a.dtype, (a,), float(p), seed=int(seed) % (1 << 64))


def evaluate(relation: Relation, expr: Expr, reduce: Optional[str]) -> Tensor:
    """Computes an expression on all in-edges of own rows. Differentiable to every tensor loaded.

    Collective where the expression reads side "u"; otherwise nothing travels.

    :param reduce: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"`` over the in-edges of each destination; rows without
        edges give 0, as do rows where max or min is infinite; NaN never wins. Of equal values max and min take the last
        edge in float32 and the first in float64, as DGL does on CPUs with AVX-512. ``"max_shared"`` and
        ``"min_shared"`` divide the gradient among equal values, and keep NaN and infinities, as PyG does. ``None``: no
        reduction
    :returns: ``[num_dst, *expr.shape]``, or ``[num_edges, *expr.shape]`` in the users' order of edges for ``None``
    :raises ValueError: the reducer, or the number of rows of a tensor
    :raises TypeError: dtypes differ
    """
    if reduce not in (*REDUCERS, None):
        raise ValueError(
            f"reduce {reduce!r} is unknown: give one of {', '.join(REDUCERS)}, or None for a value per edge"
        )
    return program.run(relation, expr, reduce)


def _check_tensor(tensor: Tensor, what: str) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{what} is a {type(tensor).__name__}, and must be a tensor")
    if tensor.device.type != "cpu":
        raise TypeError(f"{what} is on {tensor.device}: messages run on CPU tensors for now; use .cpu()")
    if tensor.dtype not in FLOATS:
        raise TypeError(refusal(what, tensor.dtype))
