"""Functions of the rows of all nodes, for models of your own: sums over all workers, and attention whose weights are a
product, which needs no weight for each pair of nodes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.autograd.autocast import OFF, under
from sar.autograd.compile import uncompiled
from sar.graph import readout

__all__ = ["Attended", "linear_attention", "sum_over_workers"]


class Attended(NamedTuple):
    """What :func:`linear_attention` gives."""

    weighted: Tensor
    """``weighted[i] = sum over all nodes j of (q[i] . k[j]) v[j]``, ``[n, ..., m]``."""
    total: Tensor
    """``total[i] = sum over all nodes j of q[i] . k[j]``, ``[n, ...]``."""
    nodes: Tensor
    """How many rows ``k`` has on all workers: one number, without gradient."""


@uncompiled
def sum_over_workers(value: Tensor) -> Tensor:
    """Adds up a tensor of all workers: ``k.T @ v`` of own nodes becomes that of all. Collective, in backward too.

    Every worker gets the sum. Its gradient is the sum of the gradients of all workers, which is right where each
    worker's loss is its share of one. Without :func:`sar.initialize_comms` the sum is the value.

    :param value: the same shape and type on every worker, float32, float64 or bfloat16, of which sums are float32's
    :raises ValueError: on every worker, where shapes differ
    """
    if _session.peek() is None:
        return value
    if value.dtype == torch.bfloat16:
        return readout.sum_over_workers(value.float()).to(value.dtype)
    return readout.sum_over_workers(value)


@uncompiled
def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Attended:
    """Attention of own nodes to the nodes of all workers, where the weight of a pair is ``q[i] . k[j]``. Collective.

    ::

        weighted, total, nodes = sar.nn.functional.linear_attention(q, k, v)
        out = weighted / total.unsqueeze(-1)                              # Performer: q and k positive
        out = (weighted + nodes * v) / (total + nodes).unsqueeze(-1)      # SGFormer: q and k of length 1

    ``q @ (k.T @ v)`` is computed from the right: workers add up a matrix ``[d, m]`` and a vector ``[d]`` for each head,
    in forward and in backward, and no row of a node travels. Takes memory for own rows alone.

    :param q: ``[n, d]``, or ``[n, heads, d]``; a row for each own node
    :param k: ``[rows, d]`` or ``[rows, heads, d]``: own nodes as well, or others
    :param v: ``[rows, m]`` or ``[rows, heads, m]``
    :returns: in the type of the inputs; of bfloat16, and under autocast, sums are float32's
    :raises ValueError: shapes that do not fit
    """
    fits = q.dim() == k.dim() == v.dim() > 1 and q.shape[1:] == k.shape[1:] and k.shape[:-1] == v.shape[:-1]
    if not fits or q.dim() > 3:
        raise ValueError(
            f"linear_attention: q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} must be [n, d], "
            "[rows, d] and [rows, m], or have the same heads in between"
        )
    dtype = v.dtype
    if dtype == torch.bfloat16:
        q, k, v = q.float(), k.float(), v.float()
    with under(OFF):
        products, sums = torch.einsum("j...d,j...m->...dm", k, v), k.sum(0)
        flat = torch.cat([products.flatten(), sums.flatten(), k.new_tensor([float(len(k))])])
        flat = sum_over_workers(flat)
        products = flat[: products.numel()].view(products.shape)
        sums = flat[products.numel() : -1].view(sums.shape)
        weighted = torch.einsum("i...d,...dm->i...m", q, products)
        total = torch.einsum("i...d,...d->i...", q, sums)
    return Attended(weighted.to(dtype), total.to(dtype), flat[-1].detach())
