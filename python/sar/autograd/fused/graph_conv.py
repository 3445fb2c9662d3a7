"""GraphConv of DGL and of ``sar.nn`` in prepared models, and by blocks of columns in inference."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.autograd.aggregate import aggregate
from sar.autograd.autocast import product_dtype
from sar.autograd.compile import uncompiled
from sar.autograd.types import Relation
from sar.graph.manager import GraphShardManager

from . import low_memory
from .costs import product_first
from .deferred import computed
from .eligibility import fits_alone, note_choice
from .linear import linear
from .prepared import constant_of
from .scaled_product import Factors, normalized_sum, sum_by_columns

_LEFT = {"both": -0.5, "left": -1.0}
_RIGHT = {"both": -0.5, "right": -1.0}
"""Powers of degrees, by the normalization of GraphConv."""


@uncompiled
def graph_conv(graph: Any, layer: Any, feat: Any, norm: str) -> Optional[Tensor]:
    """The result of a GraphConv, of DGL or of ``sar.nn``, that was given no weights, where it is prepared to run in one
    piece, or in little memory; None where it has to take its own steps. Collective.

    :param norm: ``"both"``, ``"left"``, ``"right"`` or ``"none"``
    """
    lean, constant = low_memory.active(), constant_of(layer)
    if not (lean or constant) or not isinstance(graph, GraphShardManager):
        return None
    x, weight = computed(feat), layer.weight
    half = weight is not None and isinstance(x, Tensor) and product_dtype(x, weight) == torch.bfloat16
    fits = weight is not None and fits_alone(graph, x, weight, len(weight))
    fits = fits and not (lean and half)  # sums over blocks of columns would be rounded after each block
    if not (low_memory.all_fit(fits) if lean else note_choice(layer, graph, fits)):
        if constant and not (lean or half or product_first(*weight.shape)):
            constant.missed()
        return None
    _session.current().follow_config()
    x, relation, first = x.contiguous(), graph._relation(None), product_first(*weight.shape)

    def factors() -> Factors:
        left = _factors(graph.out_degrees(), x, _LEFT.get(norm))
        return left, _factors(graph.in_degrees(), x, _RIGHT.get(norm))

    if half:
        out = _rounded(relation, x, weight.t(), layer.bias, factors(), first)
    elif lean:
        left, right = factors()
        out = sum_by_columns(relation, "sum", x, weight.t(), None, None, left, first)
        out = out if right is None else out.mul_(right)
        out = out if layer.bias is None else out.add_(layer.bias)
    else:
        out = normalized_sum(relation, x, weight.t(), layer.bias, factors, (norm,), constant, first)
    activation = getattr(layer, "_activation", None) or getattr(layer, "activation", None)
    return out if activation is None else activation(out)


def _factors(degrees: Tensor, x: Tensor, power: Optional[float]) -> Optional[Tensor]:
    return None if power is None else degrees.to(x.dtype).clamp(min=1).pow(power).unsqueeze(-1)


def _rounded(
    relation: Relation, x: Tensor, weight: Tensor, bias: Optional[Tensor], factors: Factors, first: bool
) -> Tensor:
    """A GraphConv by its own steps, which round where DGL's do; products alone are ours."""
    left, right = factors
    out = x if left is None else x * left
    out = linear(out, weight) if first else out
    out = aggregate(relation, "copy_u", "sum", out, None)
    out = out if first else linear(out, weight)
    out = out if right is None else out * right
    return out if bias is None else out + bias
