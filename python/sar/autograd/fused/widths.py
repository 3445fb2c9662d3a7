"""The shape of a row that a layer gives, as its class and its settings say."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

Features = Tuple[int, ...]


def features(module: Any) -> Optional[Features]:
    """The shape of a row of the result, ``()`` if it is that of the input; None where it is not known."""
    for kind in type(module).__mro__:
        of = _KNOWN.get((kind.__module__.partition(".")[0], kind.__name__))
        if of is not None:
            found = of(module)
            return found if all(type(n) is int and n > 0 for n in found or ()) else None
    return None


def _last(layers: Any) -> Optional[Features]:
    """Of the last linear map."""
    widths = [getattr(m, "out_features", getattr(m, "out_channels", None)) for m in layers.modules()]
    found = [w for w in widths if w is not None]
    return (found[-1],) if found else None


def _gat_of_sar(layer: Any) -> Optional[Features]:
    heads, out = layer.num_heads, layer.out_feats
    return {None: (heads, out), "flatten": (heads * out,), "mean": (out,)}.get(layer.merge)


_KNOWN: Dict[Tuple[str, str], Callable[[Any], Optional[Features]]] = {
    ("dgl", "GraphConv"): lambda m: (m._out_feats,),
    ("dgl", "SAGEConv"): lambda m: (m._out_feats,),
    ("dgl", "GATConv"): lambda m: (m._num_heads, m._out_feats),
    ("dgl", "GINConv"): lambda m: () if m.apply_func is None else _last(m.apply_func),
    ("sar", "GraphConv"): lambda m: (m.out_feats,),
    ("sar", "SAGEConv"): lambda m: (m.out_feats,),
    ("sar", "GATConv"): _gat_of_sar,
    ("sar", "GINConv"): lambda m: () if m.apply_func is None else _last(m.apply_func),
    ("sar", "DistributedBN1D"): lambda m: (),
    ("torch", "_BatchNorm"): lambda m: (),
    ("torch_geometric", "GCNConv"): lambda m: (m.out_channels,),
    ("torch_geometric", "SAGEConv"): lambda m: (m.out_channels,),
    ("torch_geometric", "GATConv"): lambda m: (m.out_channels * (m.heads if m.concat else 1),),
    ("torch_geometric", "GINConv"): lambda m: _last(m.nn),
    ("torch_geometric", "BatchNorm"): lambda m: (),
}
"""By the library and the class."""
