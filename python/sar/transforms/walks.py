"""Random walks: probabilities of being back after some steps, and PageRank.

``A[u, v]`` is the weight of the edges from u to v, and d(u) the sum of those from u. A walk goes from u to v with
probability ``A[u, v] / d(u)``, so probabilities of where it is are multiplied by ``P = A.T D^-1``.
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from .adjacency import Adjacency

_COLUMNS = 4  # that are in memory at once for each column of a block
_WIDEST = 512


@torch.no_grad()
def landing(adjacency: Adjacency, length: int, degrees: Tensor, dtype: torch.dtype, memory: int) -> Tensor:
    """The probabilities that a walk is where it began after 1, 2 .. ``length`` steps. Collective.

    Columns of powers of P are computed in blocks. Of a symmetric graph half as many powers are needed, since::

        (P^(a + b))[v, v] = d(v) * sum over u of (P^a)[u, v] * (P^b)[u, v] / d(u)

    :param degrees: d, float64 ``[own nodes]``; where it is 0, a walk ends
    :param dtype: of products
    :param memory: bytes that columns may take on a worker
    :returns: ``[own nodes, length]`` of this dtype
    """
    own, everyone, first = adjacency.num_own, adjacency.num_nodes, adjacency.first
    inverse = (1 / degrees).masked_fill_(degrees == 0, 0).to(dtype).view(-1, 1)
    symmetric = adjacency.symmetric()
    found = torch.zeros(own, length, dtype=torch.float64)
    row = max(1, adjacency.most_rows()) * dtype.itemsize * _COLUMNS
    width = max(1, min(memory // row, _WIDEST, everyone))
    for begin in range(0, everyone, width):
        end = min(begin + width, everyone)
        low, high = max(begin, first) - first, min(end, first + own) - first
        mine = torch.arange(low, max(low, high))
        columns = mine + first - begin
        at = torch.zeros(own, end - begin, dtype=dtype)
        at[mine, columns] = 1
        if symmetric:
            sums = _halves(adjacency, at, inverse, length)
            found[mine] = sums[:, columns].T * degrees[mine].view(-1, 1)
        else:
            for step in range(length):
                at = adjacency.sums(at * inverse)
                found[mine, step] = at[mine, columns].double()
    return found.to(dtype)


def _halves(adjacency: Adjacency, at: Tensor, inverse: Tensor, length: int) -> Tensor:
    """The sums over u, float64 ``[length, columns]``."""
    sums = torch.zeros(length, at.shape[1], dtype=torch.float64)
    for step in range(0, length, 2):
        scaled = at * inverse
        at = adjacency.sums(scaled)
        sums[step] = scaled.mul_(at).sum(0, dtype=torch.float64)
        if step + 1 < length:
            torch.mul(at, inverse, out=scaled)
            sums[step + 1] = scaled.mul_(at).sum(0, dtype=torch.float64)
    return adjacency.total(sums)


@torch.no_grad()
def pagerank(
    adjacency: Adjacency, alpha: float, personalization: Optional[Tensor], tolerance: float, most: int
) -> Tensor:
    """See :func:`sar.transforms.pagerank`: float64 ``[own nodes]`` or ``[own nodes, w]``."""
    degrees = adjacency.degrees(out=True).view(-1, 1)
    ends = degrees == 0
    inverse = (1 / degrees).masked_fill_(ends, 0)
    if personalization is None:
        restart = torch.full((adjacency.num_own, 1), 1 / max(1, adjacency.num_nodes), dtype=torch.float64)
    else:
        restart = personalization.double()
        restart = restart.unsqueeze(1) if restart.dim() == 1 else restart
        mass = adjacency.total(restart.sum(0))
        wrong = adjacency.total(torch.cat([(restart < 0).sum().view(1), (~restart.isfinite()).sum().view(1)]))
        if bool(wrong.any()) or bool((mass <= 0).any()):
            raise ValueError("pagerank: personalization is made of numbers of at least 0, some of them greater")
        restart = restart / mass
    x = restart
    for _ in range(most):
        ended = adjacency.total((x * ends).sum(0))
        after = adjacency.sums(x * inverse).add_(restart * ended).mul_(alpha).add_(restart * (1 - alpha))
        change = adjacency.total((after - x).abs_().sum(0))
        x = after
        if bool((change <= tolerance).all()):
            return x.view(-1) if personalization is None else x.view(personalization.shape)
    raise RuntimeError(
        f"pagerank: after {most} products ranks still change by {float(change.max()):.1e}, which is more than "
        f"{tolerance:.1e}: give a larger tolerance, a smaller alpha or a larger max_iterations"
    )
