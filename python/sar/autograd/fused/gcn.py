"""Graph convolution (Kipf and Welling) by blocks of columns, for inference in little memory.

``out = right . A (left . x) W + b``, with the normalization of ``dgl.nn.GraphConv`` as one factor for each source
(left) and destination (right).
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from sar._engine import abi, session as _session
from sar.autograd.compile import uncompiled
from sar.graph.manager import GraphShardManager

from . import lean
from .deferred import computed

_LEFT = {"both": -0.5, "left": -1.0}
_RIGHT = {"both": -0.5, "right": -1.0}


@uncompiled
def convolve(graph: Any, layer: Any, feat: Any, norm: str) -> Optional[Tensor]:
    """The result of a GraphConv, of DGL or of ``sar.nn``, that was given no weights; None where it has to take its own
    steps. Collective.

    :param norm: ``"both"``, ``"left"``, ``"right"`` or ``"none"``
    """
    if not lean.active() or not isinstance(graph, GraphShardManager):
        return None
    x, weight = computed(feat), layer.weight
    fits = (
        weight is not None
        and len(graph._relations) == 1
        and graph.src_is_tgt
        and type(x) is Tensor
        and x.dim() == 2
        and x.dtype == weight.dtype
        and x.dtype in (torch.float32, torch.float64)
        and x.shape == (graph.num_src_nodes(), weight.shape[0])
    )
    if not lean.all_fit(fits):
        return None
    _session.current().follow_config()
    out = _by_columns(graph, x.contiguous(), weight, norm)
    if layer.bias is not None:
        out += layer.bias
    activation = getattr(layer, "_activation", None) or getattr(layer, "activation", None)
    return out if activation is None else activation(out)


def _by_columns(graph: Any, x: Tensor, weight: Tensor, norm: str) -> Tensor:
    relation, (in_features, out_features) = graph._relation(None), weight.shape
    spec = abi.AggregateSpec(relation.index, "copy_u", "sum")
    first = in_features > out_features  # the product, which then is of fewer columns
    out = x.new_zeros((relation.num_dst, out_features))
    left = _factors(graph.out_degrees(), x, _LEFT.get(norm))
    step = lean.columns(in_features, out_features)
    for begin in range(0, out_features if first else in_features, step):
        at = slice(begin, begin + step)
        u = x.mm(weight[:, at]) if first else x[:, at].clone(memory_format=torch.contiguous_format)
        if left is not None:
            u.mul_(left)
        total = u.new_empty((relation.num_dst, u.shape[1]))
        abi.aggregate_forward(relation.handle, spec, 0, u, None, total)
        if first:
            out[:, at] = total
        else:
            out.addmm_(total, weight[at])
        del u, total  # before the next are made
    right = _factors(graph.in_degrees(), x, _RIGHT.get(norm))
    return out if right is None else out.mul_(right)


def _factors(degrees: Tensor, x: Tensor, power: Optional[float]) -> Optional[Tensor]:
    return None if power is None else degrees.to(x.dtype).clamp(min=1).pow(power).unsqueeze(-1)
