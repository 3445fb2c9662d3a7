"""Built-in messages on tensors of any rank: checks, DGL's broadcasting, then :func:`aggregate`."""

from __future__ import annotations

from math import prod
from typing import Tuple

import torch
from torch import Tensor

from .aggregate import aggregate
from .dtypes import FLOATS, joint, refusal
from .types import Relation, check_count


def copy_u(relation: Relation, reduce: str, u: Tensor, name: str = "u") -> Tensor:
    """``out[i] = reduce over in-edges (j -> i) of u[j]``.

    :param u: ``[num_src, ...]``, float32, float64 or bfloat16
    :param name: what errors call it
    :returns: ``[num_dst, ...]``
    :raises TypeError: dtype or device
    :raises ValueError: the number of rows
    """
    check(u, relation.num_src, "source nodes", name)
    width = prod(u.shape[1:])
    out = aggregate(relation, "copy_u", reduce, u.reshape(relation.num_src, width), None)
    return out.view(relation.num_dst, *u.shape[1:])


def u_mul_e(relation: Relation, reduce: str, u: Tensor, e: Tensor, u_name: str = "u", e_name: str = "e") -> Tensor:
    """``out[i] = reduce over in-edges (j -> i) of u[j] * e[ji]``, feature dimensions aligned from the right.

    ``e`` of shape ``[E]``, ``[E, 1]`` or ``[E, 1, 1]`` is one weight per edge; ``[E, H, 1]`` against u ``[N, H, D]``,
    or ``[E, H]`` against ``[N, H]``, is one per head. Other shapes that broadcast are expanded first.

    :raises TypeError: dtype or device, or u and e differ in dtype
    :raises ValueError: the number of rows, or shapes that do not broadcast
    """
    check(u, relation.num_src, "source nodes", u_name)
    check(e, relation.num_edges, "in-edges", e_name)
    if joint(u.dtype, e.dtype) is None:
        raise TypeError(f"{u_name} is {u.dtype} and {e_name} is {e.dtype}: convert one of them, they must be the same")
    try:
        shape = tuple(torch.broadcast_shapes(u.shape[1:], e.shape[1:]))
    except RuntimeError:
        hint = ""
        if e.dim() == 2 and u.dim() == 3 and e.shape[1] == u.shape[1]:
            hint = f"; for one weight per head give it as {(*e.shape, 1)}"
        raise ValueError(
            f"{u_name} {tuple(u.shape)} and {e_name} {tuple(e.shape)} do not broadcast: dimensions after the first are "
            f"aligned from the right and must be equal or 1{hint}"
        ) from None
    if tuple(u.shape[1:]) != shape:
        u = u.reshape(u.shape[0], *_padded(u, len(shape))).expand(u.shape[0], *shape)
    heads, weights = per_head(e, shape)
    width = prod(shape)
    out = aggregate(
        relation,
        "u_mul_e",
        reduce,
        u.reshape(relation.num_src, width),
        weights.reshape(relation.num_edges, heads),
    )
    return out.view(relation.num_dst, *shape)


def check_dense(tensor: Tensor, name: str) -> None:
    """:raises TypeError: a sparse tensor"""
    if tensor.layout != torch.strided:
        raise TypeError(
            f"{name} is sparse ({tensor.layout}): rows of nodes and edges are dense on a split graph; use "
            f"{name}.to_dense(), or multiply it by the weight of a linear map first"
        )


def check(tensor: Tensor, rows: int, what: str, name: str) -> None:
    """Refuses what the engine cannot read, by the tensor's own name."""
    check_dense(tensor, name)
    if tensor.device.type != "cpu":
        raise TypeError(f"{name} is on {tensor.device}: aggregation runs on CPU tensors for now; use {name}.cpu()")
    if tensor.dtype not in FLOATS:
        raise TypeError(refusal(name, tensor.dtype))
    check_count(tensor, rows, what, name)


def _padded(tensor: Tensor, dims: int) -> Tuple[int, ...]:
    """The feature dimensions, with ones in front until there are as many as ``dims``."""
    shape = tuple(tensor.shape[1:])
    return (1,) * (dims - len(shape)) + shape


def per_head(e: Tensor, shape: Tuple[int, ...]) -> Tuple[int, Tensor]:
    """Weights as the engine takes them: ``heads`` numbers per edge, each for a run of equally many columns."""
    own = _padded(e, len(shape))
    cut = len(own)
    while cut > 0 and own[cut - 1] == 1:
        cut -= 1
    if own[:cut] == shape[:cut]:
        return prod(own), e
    return prod(shape), e.reshape(e.shape[0], *own).expand(e.shape[0], *shape)
