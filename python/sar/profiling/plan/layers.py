"""The layers of a plan by their names."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Sequence, Tuple

from sar.autograd.fused import costs
from sar.autograd.fused.costs import LayerCost

HELP = (
    "sage:N, sage-gcn:N, sage-pool:N, gcn:N, gin:N, gat:HxD, gatv2:HxD, mean:H (of H heads), linear:N, bn, "
    "ln, relu, elu, dropout, bnact (sar.nn.BatchNormAct: the three in one), gat-flatten:HxD and gat-mean:HxD "
    "(sar.nn.GATConv with memory_efficient=True, that merge and any activation)"
)

_LAYERS: Dict[str, Tuple[int, Callable[..., LayerCost]]] = {
    "bn": (0, lambda width, grad: costs.norm(width, over_rows=True)),
    "bnact": (0, lambda width, grad: costs.norm(width, over_rows=True)),
    "ln": (0, lambda width, grad: costs.norm(width)),
    "relu": (0, lambda width, grad: costs.elementwise(width, "result")),
    "elu": (0, lambda width, grad: costs.elementwise(width, "input")),
    "dropout": (0, lambda width, grad: costs.elementwise(width, "mask")),
    "mean": (1, lambda width, grad, heads: LayerCost(width // heads)),
    "linear": (1, lambda width, grad, out: costs.linear(width, out)),
    "sage": (1, lambda width, grad, out: costs.sage(width, out, grad)),
    "sage-gcn": (1, lambda width, grad, out: costs.sage_gcn(width, out, grad)),
    "sage-pool": (1, lambda width, grad, out: costs.sage_pool(width, out, grad)),
    "gcn": (1, lambda width, grad, out: costs.gcn(width, out, grad)),
    "gin": (1, lambda width, grad, out: costs.gin(width, out, grad)),
    "gat": (2, lambda width, grad, heads, each: costs.gat(width, heads, each, grad)),
    "gatv2": (2, lambda width, grad, heads, each: costs.gatv2(width, heads, each, grad)),
    "gat-flatten": (2, lambda width, grad, heads, each: costs.gat_by_columns(width, heads, each, "flatten")),
    "gat-mean": (2, lambda width, grad, heads, each: costs.gat_by_columns(width, heads, each, "mean")),
}
"""By name: how many sizes a layer has, and what it costs: of the width of its input, whether that needs a gradient, and
the sizes."""
_WITH_NORM = ("bn relu", "bn dropout", "bn relu dropout")
"""Computed with batch norm, and again where backward needs it."""


def costs_of(layers: Sequence[str], width: int) -> List[LayerCost]:
    """What the layers of a model cost.

    :param width: of the input, which needs no gradient
    :raises ValueError: a layer that is not in ``HELP``
    """
    found: List[LayerCost] = []
    before = ""
    for layer in layers:
        name, _, size = layer.strip().lower().partition(":")
        count, cost = _LAYERS.get(name, (-1, LayerCost))
        sizes = size.split("x") if size else []
        if len(sizes) != count or not all(re.fullmatch("0*[1-9][0-9]*", number) for number in sizes):
            raise ValueError(f"layer {layer!r} is unknown; there are: {HELP}")
        before = f"{before} {name}"
        if before not in _WITH_NORM:
            grad = any(c.parameters for c in found)
            found.append(cost(found[-1].result if found else width, grad, *map(int, sizes)))
            before = name
    return found
