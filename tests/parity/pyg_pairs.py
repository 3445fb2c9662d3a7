"""Layers of ``torch_geometric.nn`` between two node types, called with a pair of features, one of each end."""

from __future__ import annotations

from typing import Any, Callable

from torch import nn

from tests.support.hetero import TRIPLES

WRITES = ("author", "writes", "paper")
RELATIONS = [WRITES, ("paper", "in", "venue"), ("venue", "has", "paper")]
IN, OUT, WIDTH = 6, 4, 3
"""Columns of nodes, of results, and of the edges of WRITES."""
assert all(triple in TRIPLES for triple in RELATIONS)


class Pairs(nn.Module):
    """A layer for each relation. ``with_columns``: for WRITES alone, whose edges have columns."""

    def __init__(self, layer: Callable[[], nn.Module], call: Callable[..., Any], with_columns: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in (RELATIONS[:1] if with_columns else RELATIONS))
        self.call, self.with_columns = call, with_columns

    def forward(self, x_dict: Any, edge_index_dict: Any, columns: Any = None) -> Any:
        found: dict[str, Any] = {}
        for triple, layer in zip(RELATIONS, self.layers):
            given = (columns[triple],) if self.with_columns else ()
            out = self.call(layer, (x_dict[triple[0]], x_dict[triple[2]]), edge_index_dict[triple], *given)
            found[triple[2]] = found[triple[2]] + out if triple[2] in found else out
        return found


def _plain(layer: nn.Module, x: Any, edge_index: Any, *columns: Any) -> Any:
    return layer(x, edge_index, *columns)


def _relations(layer: nn.Module, x: Any, edge_index: Any, columns: Any) -> Any:
    return layer(x, edge_index, (columns[:, 0] > 0).long())


def _positions(layer: nn.Module, x: Any, edge_index: Any) -> Any:
    return layer(x, (x[0][:, :3], x[1][:, 3:]), edge_index)


def _angles(layer: nn.Module, x: Any, edge_index: Any) -> Any:
    return layer(x, (x[0][:, :3], x[1][:, :3]), (x[0][:, 3:], x[1][:, 3:]), edge_index)


def _signs(layer: nn.Module, x: Any, edge_index: Any) -> Any:
    return layer(x, edge_index, edge_index)


def _made(
    name: str, *args: Any, call: Callable[..., Any] = _plain, columns: bool = False, **kwargs: Any
) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torch_geometric.nn

        def layer() -> nn.Module:
            made: nn.Module = getattr(torch_geometric.nn, name)(
                *(a() if callable(a) else a for a in args), **{k: v() if callable(v) else v for k, v in kwargs.items()}
            )
            return made

        return Pairs(layer, call, columns)

    return make


def _mlp(n_in: int, n_out: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(n_in, n_out), nn.Tanh())


_BOTH = (IN, IN)
_NO_LOOPS = {"add_self_loops": False}

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "cg": _made("CGConv", _BOTH),
    "edge": _made("EdgeConv", _mlp(2 * IN, OUT)),
    "feast": _made("FeaStConv", IN, OUT, heads=2, **_NO_LOOPS),
    "film": _made("FiLMConv", _BOTH, OUT),
    "gat": _made("GATConv", _BOTH, OUT, heads=2, **_NO_LOOPS),
    "gat_columns": _made("GATConv", _BOTH, OUT, heads=2, edge_dim=WIDTH, columns=True, **_NO_LOOPS),
    "gatv2": _made("GATv2Conv", _BOTH, OUT, heads=2, **_NO_LOOPS),
    "gatv2_columns": _made("GATv2Conv", _BOTH, OUT, heads=2, edge_dim=WIDTH, columns=True, **_NO_LOOPS),
    "gen": _made("GENConv", _BOTH, OUT, norm=None),
    "gen_columns": _made("GENConv", _BOTH, OUT, norm=None, edge_dim=WIDTH, columns=True),
    "general": _made("GeneralConv", _BOTH, OUT),
    "general_columns": _made("GeneralConv", _BOTH, OUT, in_edge_channels=WIDTH, attention=True, columns=True),
    "gin": _made("GINConv", _mlp(IN, OUT)),
    "gine": _made("GINEConv", _mlp(IN, OUT), edge_dim=WIDTH, columns=True),
    "gmm": _made("GMMConv", _BOTH, OUT, WIDTH, 2, columns=True),
    "graph": _made("GraphConv", _BOTH, OUT),
    "graph_max": _made("GraphConv", _BOTH, OUT, aggr="max"),
    "le": _made("LEConv", _BOTH, OUT),
    "mf": _made("MFConv", _BOTH, OUT),
    "nn": _made("NNConv", _BOTH, OUT, _mlp(WIDTH, IN * OUT), columns=True),
    "point_net": _made("PointNetConv", _mlp(IN + 3, OUT), call=_positions, **_NO_LOOPS),
    "point_transformer": _made("PointTransformerConv", _BOTH, OUT, call=_positions, **_NO_LOOPS),
    "ppf": _made("PPFConv", _mlp(IN + 4, OUT), call=_angles, **_NO_LOOPS),
    "res_gated": _made("ResGatedGraphConv", _BOTH, OUT),
    "res_gated_columns": _made("ResGatedGraphConv", _BOTH, OUT, edge_dim=WIDTH, columns=True),
    "rgcn": _made("RGCNConv", _BOTH, OUT, 2, call=_relations, columns=True),
    "sage": _made("SAGEConv", _BOTH, OUT),
    "sage_max": _made("SAGEConv", _BOTH, OUT, aggr="max"),
    "signed": _made("SignedConv", IN, OUT, first_aggr=True, call=_signs),
    "simple": _made("SimpleConv", "mean"),
    "transformer": _made("TransformerConv", _BOTH, OUT, heads=2),
    "transformer_columns": _made("TransformerConv", _BOTH, OUT, heads=2, beta=True, edge_dim=WIDTH, columns=True),
    "wl_continuous": _made("WLConvContinuous"),
}
