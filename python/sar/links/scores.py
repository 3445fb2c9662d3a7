"""Metrics of scores of edges and of pairs that are none, over all workers."""

from __future__ import annotations

from typing import Dict, Optional, Sequence

import torch
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.distributed.agreement import all_or_none, said_by_all, summed
from sar.graph.edge_tensor.tensor import values
from sar.graph.readout import rows_of_all


@uncompiled
@torch.no_grad()
def link_metrics(positive: Tensor, negative: Tensor, hits: Sequence[int]) -> Dict[str, Optional[float]]:
    """See :func:`sar.link_metrics`."""

    edges, pairs = values(positive).detach(), values(negative).detach()

    def check() -> None:
        own = pairs.dim() == 2
        if edges.dim() != 1 or pairs.dim() not in (1, 2) or (own and len(pairs) != len(edges)):
            raise ValueError(
                f"link_metrics: scores of shape {tuple(edges.shape)} and {tuple(pairs.shape)}: give [n], and [m] or "
                "[n, k]"
            )
        if bool(edges.isnan().any()) or bool(pairs.isnan().any()):
            raise ValueError("link_metrics: a score is NaN")

    all_or_none("sar.link_metrics", check)
    own_pairs = max(said_by_all(pairs.dim())) == 2
    everyone = rows_of_all(edges).sort().values
    others = int(summed(torch.tensor(pairs.numel())))
    at_least = summed(_above(pairs.reshape(-1), everyone, False))
    above = summed(_above(pairs.reshape(-1), everyone, True))
    found: Dict[str, Optional[float]] = dict.fromkeys(["auc", "ap", "mrr", *(f"hits@{k}" for k in hits)])
    count = len(everyone)
    if not count or not others:
        return found
    twice = int((2 * (others - at_least) + (at_least - above)).sum())
    found["auc"] = twice / (2 * count * others)
    higher = count - torch.searchsorted(everyone, everyone)  # edges that score as much, or more
    found["ap"] = float((higher.double() / (higher + at_least)).mean())
    if own_pairs:  # of own edges, each with its own pairs
        at_least, above = (pairs >= edges[:, None]).sum(1), (pairs > edges[:, None]).sum(1)
    ranks = 1 + (at_least + above).double() / 2
    hit = [(at_least < k).double().sum() for k in hits]
    total = torch.stack([(1 / ranks).sum(), *hit])
    if own_pairs:
        summed(total)
    found.update(zip(["mrr", *(f"hits@{k}" for k in hits)], (total / count).tolist()))
    return found


def _above(scores: Tensor, bounds: Tensor, more: bool) -> Tensor:
    """How many scores are at least each bound; or more than it."""
    return len(scores) - torch.searchsorted(scores.sort().values, bounds, right=more)
