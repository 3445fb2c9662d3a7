"""What single modules of a model send and keep, from their widths: the layers of :mod:`.layers` that they are."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from .layers import State, Worker, play
from .tape import Tape

__all__ = ["Sizes", "cost"]


class Sizes(NamedTuple):
    """Of one relation of a worker's part of a graph: own nodes, their in-edges, and rows that it sends to others."""

    rows: int
    edges: int
    sent: int


def cost(module: Any, sizes: Sizes, fused: bool, grad: bool = True) -> Optional[Tuple[int, int]]:
    """Bytes that a module sends in a training step, and keeps for backward; None where that is not known.

    :param fused: whether it runs in one piece
    :param grad: whether its input needs a gradient
    """
    layer = _layer(module)
    if layer is None:
        return None
    weight = next((p for p in module.parameters() if p.is_floating_point()), None)
    item = 4 if weight is None else weight.element_size()
    width, steps = layer
    tape = Tape()
    state = State(Worker(sizes.rows, sizes.edges, item), width, tape)
    state.x.needs_grad = grad
    steps(state, fused)
    if state.norm_pending:
        state.normalize()
    sent = sum(numbers * (2 if back else 1) for numbers, back in state.moved) * item * sizes.sent
    return sent, tape.kept()


_Layer = Tuple[int, Callable[[State, bool], None]]


def _layer(module: Any) -> Optional[_Layer]:
    """The width of a module's input, and what it does; None where it is not known."""
    for kind in type(module).__mro__:
        home = kind.__module__.partition(".")[0]
        make = _KNOWN.get((home, kind.__name__))
        if make is not None:
            try:
                return make(module)
            except (AttributeError, TypeError):  # pairs of widths, and those that are not known before the first row
                return None
    return None


def _named(width: Any, name: str) -> Optional[_Layer]:
    return (width, lambda s, fused: play(s, name)) if isinstance(width, int) and width > 0 else None


def _sage(layer: Any, given: Any, out: int, kind: str) -> Optional[_Layer]:
    def steps(s: State, fused: bool) -> None:
        if fused or kind != "mean":
            play(s, f"sage:{out}" if kind == "mean" else f"sage-gcn:{out}")
            return
        x, first = s.x, s.width > out and not hasattr(layer, "lin_l")  # PyG's takes the mean first
        at = out if first else s.width
        h = s.aggregate(s.linear(x, s.width, out, bias=False) if first else x, at)
        h = h if first else s.linear(h, s.width, out, bias=False)
        s.done(s.tape.run([h, s.linear(x, s.width, out)], s.bytes(out), passes=True), out)

    return (given, steps) if isinstance(given, int) and given > 0 and kind in ("mean", "gcn") else None


def _gcn_of_pyg(layer: Any) -> Optional[_Layer]:
    """The product comes first, whatever the widths."""

    def steps(s: State, fused: bool) -> None:
        out = layer.out_channels
        h = s.linear(s.x, s.width, out, bias=False)
        s.done(s.tape.run([s.aggregate(h, out)], s.bytes(out), passes=True), out)

    return (layer.in_channels, steps) if layer.in_channels > 0 else None


def _gin(layer: Any) -> Optional[_Layer]:
    """The sum over neighbours; what comes after it is a module of its own."""
    made = getattr(layer, "nn", None) or layer.apply_func
    width = next((m.weight.shape[1] for m in made.modules() if getattr(m, "weight", None) is not None), 0)
    return (width, lambda s, fused: s.done(s.aggregate(s.x, s.width), s.width)) if width else None


def _sage_of_dgl(layer: Any) -> Optional[_Layer]:
    return _sage(layer, layer._in_src_feats, layer._out_feats, layer._aggre_type)


def _gat_of_sar(layer: Any) -> Optional[_Layer]:
    heads, each = layer.num_heads, layer.out_feats
    name = f"gat-{layer.merge or 'flatten'}" if layer.memory_efficient else "gat"
    return _named(layer.src_feats, f"{name}:{heads}x{each}")


_KNOWN: Dict[Tuple[str, str], Callable[[Any], Optional[_Layer]]] = {
    ("dgl", "GraphConv"): lambda m: _named(m._in_feats, f"gcn:{m._out_feats}"),
    ("dgl", "SAGEConv"): _sage_of_dgl,
    ("dgl", "GATConv"): lambda m: _named(m._in_src_feats, f"gat:{m._num_heads}x{m._out_feats}"),
    ("dgl", "GATv2Conv"): lambda m: _named(m._in_src_feats, f"gatv2:{m._num_heads}x{m._out_feats}"),
    ("dgl", "GINConv"): _gin,
    ("sar", "GraphConv"): lambda m: _named(m.in_feats, f"gcn:{m.out_feats}"),
    ("sar", "SAGEConv"): lambda m: _sage(m, m.src_feats, m.out_feats, m.aggregator_type),
    ("sar", "GATConv"): _gat_of_sar,
    ("sar", "GATv2Conv"): lambda m: _named(m.src_feats, f"gatv2:{m.num_heads}x{m.out_feats}"),
    ("sar", "GINConv"): _gin,
    ("sar", "DistributedBN1D"): lambda m: _named(m.n_feats, "bnact"),
    ("torch", "_BatchNorm"): lambda m: _named(m.num_features, "bnact"),
    ("torch_geometric", "GCNConv"): _gcn_of_pyg,
    ("torch_geometric", "SAGEConv"): lambda m: _sage(m, m.in_channels, m.out_channels, m.aggr),
    ("torch_geometric", "GATConv"): lambda m: _named(m.in_channels, f"gat:{m.heads}x{m.out_channels}"),
    ("torch_geometric", "GATv2Conv"): lambda m: _named(m.in_channels, f"gatv2:{m.heads}x{m.out_channels}"),
    ("torch_geometric", "GINConv"): _gin,
}
"""By the library and the class."""
