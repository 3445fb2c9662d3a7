"""What :func:`sar.prepare` makes of layers of DGL."""

from __future__ import annotations

from typing import Any, Dict, Optional

import dgl
from torch import nn

from sar.autograd.fused.eligibility import disturbed, sage_unfit
from sar.autograd.fused.prepared import FUSED, NODES, REFUSED, STEPS, Plan, forward_of_class

from .layers import gat_conv_unfit, graph_conv, layers_with_graph

_POOLS = ("SumPooling", "AvgPooling", "MaxPooling", "WeightAndSum", "GlobalAttentionPooling", "Set2Set")
_REFUSED: Dict[str, str] = {
    **dict.fromkeys(["SetTransformerEncoder", "SetTransformerDecoder"], "it relates each node to all others"),
    "SortPooling": "it orders the nodes of all workers",
}


def plan(module: nn.Module) -> Optional[Plan]:
    """What a layer becomes; None where it is none of DGL's."""
    layer: Any = module
    kind: Any = next((kind for kind in type(module).__mro__ if kind in layers_with_graph()), None)
    if kind is None:
        return None
    name = kind.__name__
    if name in _REFUSED:
        return Plan(REFUSED, _REFUSED[name])
    if type(module).forward is not kind.forward:
        return Plan(STEPS, "it has a forward of its own")
    if name in _POOLS:
        return Plan(NODES, "it reduces over the nodes of each graph", forward_of_class)
    why: Optional[str] = "the layer's own, whose sums over edges run in the engine"
    if kind is dgl.nn.SAGEConv:
        why = disturbed() or sage_unfit(layer, layer._aggre_type)
    elif kind is dgl.nn.GATConv:
        why = disturbed() or gat_conv_unfit(layer)
    elif type(module) is dgl.nn.GraphConv and layer.weight is not None and disturbed() is None:
        return Plan(FUSED, "nothing looks at its steps", graph_conv)
    return Plan(FUSED if why is None else STEPS, why or "nothing looks at its steps", forward_of_class)
