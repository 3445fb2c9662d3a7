"""The softmax over the out-edges of source nodes, which may lie on any worker.

Edge tensors are materialized here. The exact maximum of a source's logits is not needed: a softmax does not change if
all logits of a node are shifted by the same amount, as long as no power leaves the range of double precision. So the
shift is a smooth maximum, computed with two sums at the owners of the sources.
"""

from __future__ import annotations

from math import prod
from typing import Dict, List, Sequence, Tuple

import torch
from torch import Tensor

from sar._engine import abi, session as _session
from sar.autograd.expression import evaluate, load
from sar.autograd.transpose import sum_to_sources
from sar.graph.relation import Relation

from .tensor import EdgeTensor

__all__ = ["source_softmax"]

EXPONENT = 500.0
"""Powers of e up to which double precision has room for sums of many."""


def source_softmax(relations: Sequence[Relation], logits: Sequence[Tensor]) -> List[Tensor]:
    """``exp(logits[e])`` divided by its sum over the edges of all given relations that leave the source of e.

    Collective. Differentiable.

    :param logits: for each relation ``[num_edges, ...]``, float32 or float64
    :returns: the same shapes and dtypes
    """
    given = [value.materialize() if isinstance(value, EdgeTensor) else value for value in logits]
    flat = [value.reshape(len(value), prod(value.shape[1:])).double() for value in given]
    shifted = _shifted(relations, flat)
    powers = [value.exp() for value in shifted]
    sums = _by_source(relations, powers)
    return [
        (power / evaluate(r, load("u", sums[r.canonical[0]]), None)).to(value.dtype).view(value.shape)
        for r, power, value in zip(relations, powers, given)
    ]


def _shifted(relations: Sequence[Relation], flat: List[Tensor]) -> List[Tensor]:
    """Logits less a smooth maximum of their source's; the result does not depend on it, so gradients ignore it."""
    low, high = _range(flat)
    with torch.no_grad():
        shift = [torch.full_like(value, high) for value in flat]
        temperature = max(1.0, (high - low) / EXPONENT)
        for _ in range(2):  # the second round makes up for the width of the first smooth maximum
            powers = [((value - s) / temperature).exp() for value, s in zip(flat, shift)]
            smooth = {kind: z.log() * temperature for kind, z in _by_source(relations, powers).items()}
            # sources without edges are not read
            smooth = {kind: torch.where(torch.isfinite(z), z, torch.zeros_like(z)) for kind, z in smooth.items()}
            shift = [s + evaluate(r, load("u", smooth[r.canonical[0]]), None) for r, s in zip(relations, shift)]
            temperature = max(1.0, temperature / EXPONENT * 50)
    return [value - s for value, s in zip(flat, shift)]


def _by_source(relations: Sequence[Relation], values: Sequence[Tensor]) -> Dict[str, Tensor]:
    sums: Dict[str, Tensor] = {}
    for relation, value in zip(relations, values):
        kind, part = relation.canonical[0], sum_to_sources(relation, value, None)
        sums[kind] = sums[kind] + part if kind in sums else part
    return sums


def _range(flat: Sequence[Tensor]) -> Tuple[float, float]:
    """Smallest and largest finite logit of all workers."""
    ends = torch.tensor([float("-inf"), float("-inf")], dtype=torch.float64)
    for value in flat:
        finite = value.detach()[torch.isfinite(value.detach())]
        if finite.numel():
            ends = torch.maximum(ends, torch.stack([-finite.min(), finite.max()]))
    _session.all_reduce(ends, "max", abi.TRAIN)
    low, high = -float(ends[0]), float(ends[1])
    return (low, high) if low <= high else (0.0, 0.0)
