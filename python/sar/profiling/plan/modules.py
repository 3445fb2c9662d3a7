"""What single modules of a model send and keep, from their widths."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Tuple

from sar._engine import session as _session
from sar.autograd.fused import costs
from sar.autograd.fused.costs import LayerCost


class Sizes(NamedTuple):
    """Of one relation of a worker's part of a graph: own nodes, and rows that it sends to others."""

    rows: int
    sent: int


def cost(module: Any, sizes: Sizes, fused: bool, grad: bool = True) -> Optional[Tuple[int, Optional[int]]]:
    """Bytes that a module sends in a training step, and keeps for backward; None where that is not known.

    :param fused: whether it runs in one piece
    :param grad: whether its input needs a gradient
    """
    for kind in type(module).__mro__:
        library = kind.__module__.partition(".")[0]
        if kind.__name__ in _KNOWN.get(library, ()):
            break
    else:
        return None
    weight = next((p for p in module.parameters() if p.is_floating_point()), None)
    item = 4 if weight is None else weight.element_size()
    if kind.__name__ in _ATTENTION:
        return 2 * _sent_by_all_reduce(item * _added(module)), None
    try:
        width, layer = _declared(module, library, kind.__name__, fused, grad)
        if layer is None or width < 1:
            return None
    except (AttributeError, TypeError):  # pairs of widths, and those that are not known before the first row
        return None
    saved = layer.saved + width * layer.saves_input + layer.result * layer.saves_result
    # a layer without parameters saves nothing where its input needs no gradient
    return int(layer.sent(item) * sizes.sent), saved * item * sizes.rows if grad or layer.parameters else 0


def _added(attention: Any) -> int:
    """Numbers that workers add up for the heads of a layer whose attention is linear, each way."""
    width: int = attention.head_channels
    keys = attention.fast_attn.num_rows if hasattr(attention, "fast_attn") else width
    return int(attention.heads) * keys * (width + 1) + 1


def _sent_by_all_reduce(count: int) -> int:
    """Of so many bytes, by each worker: few go to each other one, of more a part, and again its sum."""
    world = _session.current().world
    return (world - 1) * count if count <= 32 << 10 else 2 * (world - 1) * count // world


def _declared(m: Any, library: str, name: str, fused: bool, grad: bool) -> Tuple[Any, Optional[LayerCost]]:
    """The width of a module's input, and what the layer costs."""
    found: List[Any] = [next((getattr(m, a) for a in names if hasattr(m, a)), None) for names in _NAMES[library]]
    width, out, heads, kind = found
    if name in ("_BatchNorm", "DistributedBN1D"):
        return width, costs.norm(width)
    if name == "GINConv":  # the sum over neighbours; what comes after it is a module of its own
        made = getattr(m, "nn", None) or m.apply_func
        width = next((one.weight.shape[1] for one in made.modules() if getattr(one, "weight", None) is not None), 0)
        return width, costs.neighbour_sum(width, grad)
    if name == "GCNConv":
        return width, costs.gcn_product_first(width, out)
    if name == "GraphConv":
        return width, costs.gcn(width, out, grad)
    if name == "GATv2Conv":
        return width, costs.gatv2(width, heads, out, grad)
    if name == "GATConv":
        if getattr(m, "memory_efficient", False):
            return width, costs.gat_by_columns(width, heads, out, m.merge)
        return width, costs.gat(width, heads, out, grad)._replace(promotes=library == "torch_geometric")
    if kind == "gcn":
        return width, costs.sage_gcn(width, out, grad)
    if kind != "mean":
        return width, None
    if fused:
        return width, costs.sage(width, out, grad)
    first = costs.product_first(width, out) and library != "torch_geometric"
    return width, costs.sage_steps(width, out, grad, first)


_ATTENTION = ("SGFormerAttention", "PolynormerAttention", "PerformerAttention")
_KNOWN = {
    "dgl": ("GraphConv", "SAGEConv", "GATConv", "GATv2Conv", "GINConv"),
    "sar": ("GraphConv", "SAGEConv", "GATConv", "GATv2Conv", "GINConv", "DistributedBN1D"),
    "torch": ("_BatchNorm",),
    "torch_geometric": ("GCNConv", "SAGEConv", "GATConv", "GATv2Conv", "GINConv", *_ATTENTION),
}
_NAMES = {
    "dgl": (("_in_src_feats", "_in_feats"), ("_out_feats",), ("_num_heads",), ("_aggre_type",)),
    "sar": (("src_feats", "in_feats", "n_feats"), ("out_feats",), ("num_heads",), ("aggregator_type",)),
    "torch": (("num_features",), (), (), ()),
    "torch_geometric": (("in_channels",), ("out_channels",), ("heads",), ("aggr",)),
}
"""Where modules of a library keep the widths of input and result (of a head), how many heads, and the aggregator."""
