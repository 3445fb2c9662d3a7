"""Layers of ``torch_geometric.nn``, and how to call them: the same specifications for PyG and for the workers."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch
from torch import nn

IN, OUT, HEADS, EDGE, TYPES = 6, 4, 2, 3, 3


class Spec(NamedTuple):
    """A layer and its arguments.

    ``args``: :data:`E` for the edge index, ``("n", *shape)`` rows of nodes, ``("e", *shape)`` rows of edges, ``("+",
    *shape)`` positive rows of edges, ``("01", *shape)`` rows of edges between 0 and 1, ``("nt",)`` and ``("et",)``
    types of nodes and edges, ``("set",)`` types of edges in ascending order, a list of arguments for a tuple of them,
    or a value. ``names``: those of the last arguments. ``how``: "fused", or "blocks" where the message is a function
    that runs on blocks of edges, or "values" where it is computed for all edges. ``norm``: batch norm inside is
    converted.
    """

    make: Callable[[], nn.Module]
    args: tuple[Any, ...]
    names: tuple[str, ...] = ()
    how: str = "fused"
    norm: bool = False


E = object()
X, W, EF, ET = ("n", IN), ("+",), ("e", EDGE), ("et",)
XE = (X, E)
DEGREES = torch.tensor([1, 4, 9, 12, 9, 6, 4, 2])
"""How many nodes have each in-degree."""


def pyg_nn() -> Any:
    import torch_geometric.nn

    return torch_geometric.nn


def conv(name: str, *args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(pyg_nn(), name)(*args, **kwargs)


def mlp(*sizes: int) -> nn.Module:
    return nn.Sequential(*[layer for a, b in zip(sizes[:-1], sizes[1:]) for layer in (nn.Linear(a, b), nn.Tanh())])


SPECS: dict[str, Spec] = {
    "gcn": Spec(conv("GCNConv", IN, OUT), XE),
    "gcn_weights": Spec(conv("GCNConv", IN, OUT), (X, E, W)),
    "gcn_improved": Spec(conv("GCNConv", IN, OUT, improved=True), (X, E, W)),
    "gcn_plain": Spec(conv("GCNConv", IN, OUT, add_self_loops=False), XE),
    "gcn_bare": Spec(conv("GCNConv", IN, OUT, normalize=False), XE),
    "sage": Spec(conv("SAGEConv", IN, OUT), XE),
    "sage_square": Spec(conv("SAGEConv", IN, IN, normalize=True), XE),
    "sage_wide": Spec(conv("SAGEConv", IN, 2 * IN, bias=False), XE),
    "sage_pair": Spec(conv("SAGEConv", (IN, EDGE), OUT, project=True, normalize=True), ([X, ("n", EDGE)], E)),
    "sage_max": Spec(conv("SAGEConv", IN, OUT, aggr="max"), XE),
    "gin": Spec(lambda: pyg_nn().GINConv(mlp(IN, OUT), train_eps=True), XE),
    "gat": Spec(conv("GATConv", IN, OUT, heads=HEADS), XE),
    "gat_plain": Spec(conv("GATConv", IN, OUT, heads=HEADS, add_self_loops=False, concat=False, residual=True), XE),
    "gat_mean": Spec(conv("GATConv", IN, OUT, heads=HEADS, concat=False), XE),
    "gat_wide": Spec(conv("GATConv", IN, 37, heads=3), XE),
    "gat_edges": Spec(conv("GATConv", IN, OUT, heads=HEADS, edge_dim=EDGE), (X, E, EF)),
    "gat_pair": Spec(conv("GATConv", (IN, EDGE), OUT, heads=HEADS), ([X, ("n", EDGE)], E)),
    "gatv2": Spec(conv("GATv2Conv", IN, OUT, heads=HEADS), XE),
    "gatv2_edges": Spec(conv("GATv2Conv", IN, OUT, heads=HEADS, edge_dim=EDGE, share_weights=True), (X, E, EF)),
    "transformer": Spec(conv("TransformerConv", IN, OUT, heads=HEADS, beta=True), XE),
    "transformer_edges": Spec(conv("TransformerConv", IN, OUT, heads=HEADS, edge_dim=EDGE), (X, E, EF)),
    "gine": Spec(lambda: pyg_nn().GINEConv(mlp(IN, OUT), edge_dim=EDGE), (X, E, EF)),
    "simple": Spec(conv("SimpleConv", "mean", combine_root="sum"), (X, E, W)),
    "simple_mul": Spec(conv("SimpleConv", "mul"), XE, how="values"),
    "cheb": Spec(conv("ChebConv", IN, OUT, 3), XE, how="values"),
    "cheb_rw": Spec(conv("ChebConv", IN, OUT, 2, normalization="rw"), (X, E, W), how="values"),
    "graph": Spec(conv("GraphConv", IN, OUT), (X, E, W)),
    "graph_max": Spec(conv("GraphConv", (IN, EDGE), OUT, aggr="max"), ([X, ("n", EDGE)], E)),
    "gated_graph": Spec(conv("GatedGraphConv", IN, 2), (X, E, W)),
    "res_gated": Spec(conv("ResGatedGraphConv", IN, OUT, edge_dim=EDGE), (X, E, EF), how="blocks"),
    "res_gated_plain": Spec(conv("ResGatedGraphConv", IN, OUT), XE),
    "agnn": Spec(conv("AGNNConv"), XE),
    "tag": Spec(conv("TAGConv", IN, OUT), (X, E, W)),
    "arma": Spec(conv("ARMAConv", IN, OUT, num_stacks=2, num_layers=2), XE, how="values"),
    "sg": Spec(conv("SGConv", IN, OUT, K=2), XE),
    "ssg": Spec(conv("SSGConv", IN, OUT, alpha=0.1, K=2), XE),
    "appnp": Spec(conv("APPNP", 3, 0.2), XE),
    "mf": Spec(conv("MFConv", IN, OUT), XE),
    "rgcn": Spec(conv("RGCNConv", IN, OUT, TYPES), (X, E, ET)),
    "rgcn_bases": Spec(conv("RGCNConv", IN, OUT, TYPES, num_bases=2, aggr="add"), (X, E, ET)),
    "rgcn_blocks": Spec(conv("RGCNConv", IN, OUT, TYPES, num_blocks=2), (X, E, ET)),
    "fast_rgcn": Spec(conv("FastRGCNConv", IN, OUT, TYPES), (X, E, ET), how="blocks"),
    "rgat": Spec(conv("RGATConv", IN, OUT, TYPES, heads=HEADS), (X, E, ET), how="blocks"),
    "signed_first": Spec(conv("SignedConv", IN, OUT, first_aggr=True), (X, E, E)),
    "signed": Spec(conv("SignedConv", IN // 2, OUT, first_aggr=False), (X, E, E)),
    "dna": Spec(conv("DNAConv", IN, heads=2), (("n", 2, IN), E), how="blocks"),
    "point_net": Spec(lambda: pyg_nn().PointNetConv(mlp(IN + 3, OUT), mlp(OUT, OUT)), (X, ("n", 3), E)),
    "gmm": Spec(conv("GMMConv", IN, OUT, EDGE, 2), (X, E, EF)),
    "gmm_separate": Spec(conv("GMMConv", IN, OUT, EDGE, 2, separate_gaussians=True), (X, E, EF)),
    "nn": Spec(lambda: pyg_nn().NNConv(IN, OUT, mlp(EDGE, IN * OUT), aggr="mean"), (X, E, EF), how="blocks"),
    "cg": Spec(conv("CGConv", IN, EDGE), (X, E, EF), how="blocks"),
    "edge_conv": Spec(lambda: pyg_nn().EdgeConv(mlp(2 * IN, OUT), aggr="mean"), XE),
    "edge_conv_max": Spec(lambda: pyg_nn().EdgeConv(nn.Sequential(nn.Linear(2 * IN, OUT), nn.ReLU())), XE),
    "ppf": Spec(
        lambda: pyg_nn().PPFConv(mlp(IN + 4, OUT), add_self_loops=False), (X, ("n", 3), ("n", 3), E), how="blocks"
    ),
    "feast": Spec(conv("FeaStConv", IN, OUT, heads=HEADS), XE, how="blocks"),
    "point_transformer": Spec(conv("PointTransformerConv", IN, OUT), (X, ("n", 3), E)),
    "le": Spec(conv("LEConv", IN, OUT), (X, E, W)),
    "pna_towers": Spec(
        lambda: pyg_nn().PNAConv(IN, OUT, ["sum", "var"], ["linear"], DEGREES, towers=2, divide_input=True), XE
    ),
    "pna_deep": Spec(conv("PNAConv", IN, OUT, ["mean", "max"], ["identity"], DEGREES, pre_layers=2), XE, how="blocks"),
    "pna": Spec(
        conv("PNAConv", IN, OUT, ["mean", "min", "max", "std"], ["identity", "attenuation"], DEGREES, edge_dim=EDGE),
        (X, E, EF),
    ),
    "cluster_gcn": Spec(conv("ClusterGCNConv", IN, OUT, diag_lambda=0.3), XE, how="values"),
    "gen": Spec(conv("GENConv", IN, OUT, learn_t=True), XE, norm=True),
    "gen_edges": Spec(
        conv("GENConv", IN, OUT, aggr="powermean", learn_p=True, edge_dim=EDGE), (X, E, EF), how="blocks", norm=True
    ),
    "gcn2": Spec(conv("GCN2Conv", IN, 0.3, 0.5, 2), (X, X, E)),
    "wl_continuous": Spec(conv("WLConvContinuous"), (X, E, W)),
    "film": Spec(conv("FiLMConv", IN, OUT), XE),
    "film_types": Spec(conv("FiLMConv", IN, OUT, TYPES), (X, E, ET)),
    "super_gat": Spec(lambda: pyg_nn().SuperGATConv(IN, OUT, heads=HEADS).eval(), XE),
    "fa": Spec(conv("FAConv", IN), (X, X, E)),
    "eg": Spec(conv("EGConv", IN, OUT, ["symnorm", "max", "std"], num_heads=2), XE),
    "pdn": Spec(conv("PDNConv", IN, OUT, EDGE, 5), (X, E, EF)),
    "general": Spec(conv("GeneralConv", IN, OUT, EDGE, attention=True, heads=HEADS), (X, E, EF)),
    "heat": Spec(
        conv("HEATConv", IN, OUT, TYPES, TYPES, 3, EDGE, 2, heads=HEADS), (X, E, ("nt",), ET, EF), how="blocks"
    ),
    "lg": Spec(conv("LGConv"), XE),
    "point_gnn": Spec(
        lambda: pyg_nn().PointGNNConv(mlp(IN, 3), mlp(3 + IN, OUT), mlp(OUT, IN)), (X, ("n", 3), E), how="blocks"
    ),
    "anti_symmetric": Spec(conv("AntiSymmetricConv", IN), XE),
    "dir": Spec(lambda: pyg_nn().DirGNNConv(pyg_nn().SAGEConv(IN, OUT)), XE, how="values"),
    "mix_hop": Spec(conv("MixHopConv", IN, OUT), XE),
    "gps": Spec(lambda: pyg_nn().GPSConv(IN, pyg_nn().SAGEConv(IN, IN), heads=HEADS), XE, norm=True),
    "gps_performer": Spec(lambda: pyg_nn().GPSConv(IN, None, norm="layer_norm", attn_type="performer"), XE),
    "gps_alone": Spec(conv("GPSConv", IN, None, norm="layer_norm"), XE),
    "own_message": Spec(lambda: _own(), (X, E, EF), how="blocks"),
    "gcn_model": Spec(conv("GCN", IN, 8, 2, OUT, norm="batch_norm", jk="cat"), XE, norm=True),
    "sage_model": Spec(conv("GraphSAGE", IN, 8, 3, OUT, jk="lstm"), XE),
    "gat_model": Spec(conv("GAT", IN, 8, 2, OUT, heads=2, v2=True), XE),
    "gin_model": Spec(conv("GIN", IN, 8, 2, OUT, jk="max", train_eps=True), XE),
    "pna_model": Spec(
        conv("PNA", IN, 8, 2, OUT, aggregators=["mean", "max", "std"], scalers=["identity", "linear"], deg=DEGREES), XE
    ),
    "edge_cnn_model": Spec(conv("EdgeCNN", IN, 8, 2, OUT, jk="last"), XE, how="blocks"),
    "deep_gcn_model": Spec(lambda: _deep(0), XE),
    "deep_gcn_again_model": Spec(lambda: _deep(1), XE),
    "hyper": Spec(conv("HypergraphConv", IN, OUT), XE, how="values"),
}


def _deep(again: int) -> nn.Module:
    """DeepGCNLayer with residuals before and behind its layer; ``again``: computed again in backward."""
    layers = [
        pyg_nn().DeepGCNLayer(
            pyg_nn().GENConv(IN, IN, norm=None), nn.LayerNorm(IN), nn.ELU(), block, ckpt_grad=bool(again)
        )
        for block in ("res+", "res", "plain", "dense")
    ]
    made: nn.Module = pyg_nn().Sequential("x, e", [(layer, "x, e -> x") for layer in layers])
    return made


def _own() -> nn.Module:
    """A layer as users write them: captured results, no gradients for a part, changes in place, random access."""
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import softmax

    class Own(MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="sum", node_dim=0)
            self.linear, self.score = nn.Linear(2 * IN + EDGE, OUT), nn.Linear(OUT, 1)
            self.mixed = nn.Parameter(torch.zeros(2, OUT, OUT))

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
            self.weight = self.mixed.sum(0)
            return self.propagate(edge_index, x=x, edge_attr=edge_attr)

        def message(self, x_i: Any, x_j: Any, edge_attr: Any, index: Any, size_i: Any) -> torch.Tensor:
            made = self.linear(torch.cat([x_i, x_j.abs() + 1, edge_attr], dim=-1))
            made = (made * 2).add_(0.5)
            made[:, 0] = made[:, 1] * 2
            with torch.no_grad():
                scale = made.norm(dim=-1, keepdim=True) + 1
            first, second = (made @ self.weight / scale).chunk(2, dim=-1)
            low = torch.minimum(first, second)
            alpha = softmax(self.score(made), index, num_nodes=size_i)
            return torch.cat([low, torch.where(first > 0, first, -second)], -1) * alpha

    return Own()


REFUSED: dict[str, Spec] = {
    "mesh_cnn": Spec(conv("MeshCNNConv", IN, OUT), XE),
}
"""Layers that raise NotImplementedError on all ranks, saying what to do."""
