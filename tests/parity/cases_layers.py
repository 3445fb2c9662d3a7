"""Layers of ``dgl.nn``, as they are, and how to call them: the same specifications for DGL and for the workers."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
from typing import Any, Callable, NamedTuple

import numpy as np
import torch
from torch import nn

import sar
from tests.support.graphs import Graph
from tests.support.worker import build, default_dtype, numpy, random_layer, refusal

WIDER = int(os.environ.get("SAR_LAYERS_WIDER", "1"))
"""A factor for feature sizes, for measurements of memory."""
IN, OUT, HEADS, EDGE = 6 * WIDER, 4 * WIDER, 2, 3
TYPES = 3


class Spec(NamedTuple):
    """A layer and its arguments. ``make`` takes the library: ``dgl.nn`` or ``sar.nn``.

    ``inputs``: ``("n", width)`` rows of nodes, ``("e", *shape)`` rows of edges, ``("+", *shape)`` positive rows of
    edges, ``("nt",)`` and ``("et",)`` types of nodes and edges, ``("set",)`` types of edges in ascending order, or a
    value. ``outputs``: a letter for each: n, e, or g for one row that all workers get. ``norm``: batch norm inside is
    converted. ``loops``: edges from nodes to themselves are fine.
    """

    make: Callable[[Any], nn.Module]
    inputs: tuple[Any, ...]
    keywords: tuple[str, ...] = ()
    outputs: str = "n"
    norm: bool = False
    loops: bool = True


def _mlp(*sizes: int) -> nn.Module:
    return nn.Sequential(*[layer for a, b in zip(sizes[:-1], sizes[1:]) for layer in (nn.Linear(a, b), nn.Tanh())])


def _conv(name: str, *args: Any, **kwargs: Any) -> Callable[[Any], nn.Module]:
    return lambda home: getattr(home, name)(*args, **kwargs)


X = ("n", IN)
EF = ("e", EDGE)
W = ("+",)

SPECS: dict[str, Spec] = {
    "graph": Spec(_conv("GraphConv", IN, OUT), (X,)),
    "graph_weights_normed": Spec(_conv("GraphConv", IN, OUT, norm="none"), (X, W), ("edge_weight",)),
    "edge_weight_norm_both": Spec(lambda home: _EdgeNorm(home.EdgeWeightNorm("both")), (W,), outputs="e"),
    "edge_weight_norm_right": Spec(lambda home: _EdgeNorm(home.EdgeWeightNorm("right")), (W,), outputs="e"),
    "edge_weight_norm_none": Spec(lambda home: _EdgeNorm(home.EdgeWeightNorm("none")), (W,), outputs="e"),
    "sage_mean": Spec(_conv("SAGEConv", IN, OUT, "mean"), (X,)),
    "sage_pool": Spec(_conv("SAGEConv", IN, OUT, "pool"), (X,)),
    "sage_pool_weights": Spec(_conv("SAGEConv", IN, OUT, "pool"), (X, W), ("edge_weight",)),
    "sage_lstm": Spec(_conv("SAGEConv", IN, OUT, "lstm"), (X,)),
    "gat": Spec(_conv("GATConv", IN, OUT, HEADS), (X,)),
    "gat_residual": Spec(_conv("GATConv", IN, OUT, HEADS, residual=True), (X,)),
    "gat_weights": Spec(_conv("GATConv", IN, OUT, HEADS), (X, W), ("edge_weight",)),
    "gat_attention": Spec(lambda home: _Attention(home.GATConv(IN, OUT, HEADS)), (X,), outputs="ne"),
    "gatv2": Spec(_conv("GATv2Conv", IN, OUT, HEADS), (X,)),
    "gatv2_residual": Spec(_conv("GATv2Conv", IN, OUT, HEADS, residual=True, share_weights=True), (X,)),
    "egat": Spec(_conv("EGATConv", IN, EDGE, OUT, 5, HEADS), (X, EF), outputs="ne"),
    "egat_weights": Spec(_conv("EGATConv", IN, EDGE, OUT, 5, HEADS), (X, EF, W), ("edge_weight",), outputs="ne"),
    "edge_gat": Spec(_conv("EdgeGATConv", IN, EDGE, OUT, HEADS), (X, EF)),
    "edge_gat_plain": Spec(_conv("EdgeGATConv", IN, EDGE, OUT, HEADS, residual=False), (X, EF)),
    "dot_gat": Spec(_conv("DotGatConv", IN, OUT, HEADS), (X,)),
    "agnn": Spec(_conv("AGNNConv"), (X,)),
    "gin_max": Spec(lambda home: home.GINConv(_mlp(IN, OUT), "max"), (X,)),
    "gin_max_weights": Spec(_conv("GINConv", None, "max"), (X, W), ("edge_weight",)),
    "gine": Spec(lambda home: home.GINEConv(_mlp(IN, OUT), learn_eps=True), (X, ("e", IN))),
    "appnp": Spec(_conv("APPNPConv", 3, 0.2), (X,)),
    "appnp_weights": Spec(_conv("APPNPConv", 3, 0.2), (X, W), ("edge_weight",)),
    "sg": Spec(_conv("SGConv", IN, OUT, k=2), (X,)),
    "sg_weights": Spec(_conv("SGConv", IN, OUT, k=2), (X, W), ("edge_weight",)),
    "tag": Spec(_conv("TAGConv", IN, OUT), (X,)),
    "tag_weights": Spec(_conv("TAGConv", IN, OUT), (X, W), ("edge_weight",)),
    "gcn2": Spec(_conv("GCN2Conv", IN, 2), (X, X)),
    "gcn2_weights": Spec(_conv("GCN2Conv", IN, 2, project_initial_features=False), (X, X, W), ("edge_weight",)),
    "gated": Spec(_conv("GatedGraphConv", IN, IN + 1, 2, 1), (X,)),
    "gated_types": Spec(_conv("GatedGraphConv", IN, IN + 1, 2, TYPES + 1), (X, ("et",))),
    "gmm": Spec(_conv("GMMConv", IN, OUT, EDGE, 2), (X, EF)),
    "gmm_max": Spec(_conv("GMMConv", IN, OUT, EDGE, 2, "max", residual=True), (X, EF)),
    "edge_conv": Spec(_conv("EdgeConv", IN, OUT), (X,)),
    "edge_conv_norm": Spec(_conv("EdgeConv", IN, OUT, batch_norm=True), (X,), norm=True),
    "cf": Spec(_conv("CFConv", IN, EDGE, 5, OUT), (X, EF)),
    "nn_mean": Spec(lambda home: home.NNConv(IN, OUT, _mlp(EDGE, IN * OUT), "mean"), (X, EF)),
    "nn_sum": Spec(lambda home: home.NNConv(IN, OUT, _mlp(EDGE, IN * OUT), "sum", residual=True), (X, EF)),
    "nn_max": Spec(lambda home: home.NNConv(IN, OUT, _mlp(EDGE, IN * OUT), "max"), (X, EF)),
    "rel_graph": Spec(_conv("RelGraphConv", IN, OUT, TYPES), (X, ("et",))),
    "rel_graph_basis": Spec(_conv("RelGraphConv", IN, OUT, TYPES, "basis", 2, layer_norm=True), (X, ("et",))),
    "rel_graph_bdd": Spec(_conv("RelGraphConv", IN, OUT, TYPES, "bdd", 2, self_loop=False), (X, ("et",))),
    "rel_graph_norm": Spec(_conv("RelGraphConv", IN, OUT, TYPES), (X, ("et",), ("+", 1)), ("norm",)),
    "rel_graph_sorted": Spec(_conv("RelGraphConv", IN, OUT, TYPES), (X, ("set",), True), ("presorted",)),
    "rel_graph_sorted_basis": Spec(
        _conv("RelGraphConv", IN, OUT, TYPES, "basis", 2), (X, ("set",), True), ("presorted",)
    ),
    "hgt": Spec(_conv("HGTConv", IN, OUT, HEADS, 2, TYPES, dropout=0.0), (X, ("nt",), ("et",))),
    "hgt_norm": Spec(_conv("HGTConv", IN, 4, HEADS, 2, TYPES, dropout=0.0, use_norm=True), (X, ("nt",), ("et",))),
    "pna": Spec(
        _conv("PNAConv", IN, IN, ["mean", "max", "sum", "min"], ["identity", "amplification"], 2.5), (X,), norm=True
    ),
    "pna_edges": Spec(
        _conv("PNAConv", IN, OUT, ["mean", "var"], ["identity", "attenuation"], 2.5, num_towers=2, edge_feat_size=EDGE),
        (X, EF),
        norm=True,
    ),
    "cheb": Spec(_conv("ChebConv", IN, OUT, 3), (X,)),
    "cheb_lambda": Spec(_conv("ChebConv", IN, OUT, 2), (X, [1.7]), ("lambda_max",)),
    "atomic": Spec(
        lambda home: home.AtomicConv(*(torch.tensor(v) for v in ([1.0, 2.0], [0.5, 1.5], [1.0, 0.7]))),
        (("n", 1), ("+", 1)),
    ),
    "dgn": Spec(
        _conv("DGNConv", IN, OUT, ["dir1-av", "dir2-dx", "sum"], ["identity", "amplification"], 2.5),
        (X, None, ("n", 3)),
        ("edge_feat", "eig_vec"),
        norm=True,
    ),
    "egnn": Spec(_conv("EGNNConv", IN, 5, OUT, EDGE), (X, ("n", 3), EF), outputs="nn", loops=False),
    "twirls": Spec(_conv("TWIRLSConv", IN, OUT, 5, 3), (X,)),
    "twirls_attention": Spec(_conv("TWIRLSConv", IN, OUT, 5, 2, attention=True, use_eta=True), (X,)),
    "group_reversible": Spec(lambda home: home.GroupRevRes(home.GraphConv(IN // 2, IN // 2), 2), (X,)),
    "sequential": Spec(lambda home: home.Sequential(home.GraphConv(IN, 5), home.GraphConv(5, OUT)), (X,)),
    "label_propagation": Spec(_conv("LabelPropagation", 3, 0.7), (("nt",),)),
    "sum_pooling": Spec(_conv("SumPooling"), (X,), outputs="g"),
    "avg_pooling": Spec(_conv("AvgPooling"), (X,), outputs="g"),
    "max_pooling": Spec(_conv("MaxPooling"), (X,), outputs="g"),
    "attention_pooling": Spec(
        lambda home: home.GlobalAttentionPooling(nn.Linear(IN, 1), nn.Linear(IN, OUT)), (X,), outputs="g"
    ),
    "set2set": Spec(_conv("Set2Set", IN, 2, 1), (X,), outputs="g"),
    "weight_and_sum": Spec(_conv("WeightAndSum", IN), (X,), outputs="g"),
}

NEWER: dict[str, Spec] = {"gated_gcn": Spec(_conv("GatedGCNConv", IN, EDGE, OUT), (X, EF), outputs="ne", norm=True)}
"""Cases of layers that came with DGL 2."""

if importlib.util.find_spec("dgl") is not None and importlib.metadata.version("dgl") >= "2":
    SPECS.update(NEWER)

WIDE, ATTENTION = 9 * WIDER, ("get_attention",)
GAT = {"out_feats": 3 * WIDER, "num_heads": HEADS, "allow_zero_in_degree": True}
NORMS = ("none", "both", "left", "right")
FEW: dict[str, Spec] = {
    "sage_mean_widening": Spec(_conv("SAGEConv", IN, WIDE, "mean"), (X,)),
    "sage_mean_weights": Spec(_conv("SAGEConv", IN, OUT, "mean"), (X, W), ("edge_weight",)),
    "sage_mean_widening_weights": Spec(_conv("SAGEConv", IN, WIDE, "mean"), (X, W), ("edge_weight",)),
    "sage_gcn": Spec(_conv("SAGEConv", IN, OUT, "gcn"), (X,)),
    "sage_gcn_widening": Spec(_conv("SAGEConv", IN, WIDE, "gcn"), (X,)),
    "sage_gcn_weights": Spec(_conv("SAGEConv", IN, OUT, "gcn"), (X, ("+", 1)), ("edge_weight",)),
    **{f"graph_{n}": Spec(_conv("GraphConv", IN, OUT, n, allow_zero_in_degree=True), (X,)) for n in NORMS},
    **{
        f"graph_{n}_weights": Spec(_conv("GraphConv", IN, WIDE, n, allow_zero_in_degree=True), (X, W), ("edge_weight",))
        for n in NORMS
    },
    "graph_widening": Spec(_conv("GraphConv", IN, WIDE, allow_zero_in_degree=True), (X,)),
    "gin_sum": Spec(lambda home: home.GINConv(nn.Linear(IN, 4), "sum", learn_eps=True), (X,)),
    "gin_mean": Spec(lambda home: home.GINConv(nn.Linear(IN, 4), "mean"), (X,)),
    "gin_sum_weights": Spec(_conv("GINConv", None, "sum"), (X, W), ("edge_weight",)),
    "gin_mean_weights": Spec(_conv("GINConv", None, "mean", 0.5), (X, W), ("edge_weight",)),
    "sg_zero": Spec(_conv("SGConv", IN, OUT, 2, allow_zero_in_degree=True), (X,)),
    "gat_zero": Spec(_conv("GATConv", IN, **GAT), (X,)),
    "gat_zero_residual": Spec(_conv("GATConv", IN, **{**GAT, "out_feats": 5}, residual=True, negative_slope=0.1), (X,)),
    "gat_zero_identity": Spec(_conv("GATConv", IN, **GAT, residual=True, bias=False), (X, W), ("edge_weight",)),
    "gat_zero_attention": Spec(_conv("GATConv", IN, **GAT), (X, True), ATTENTION, "ne"),
    "gatv2_zero": Spec(_conv("GATv2Conv", IN, **GAT, residual=True), (X,)),
    "gatv2_zero_shared": Spec(
        _conv("GATv2Conv", IN, **GAT, share_weights=True, bias=False), (X, True), ATTENTION, "ne"
    ),
    "rel_graph_basis_norm": Spec(_conv("RelGraphConv", IN, OUT, TYPES, "basis", 2), (X, ("et",), ("+", 1)), ("norm",)),
    "rel_graph_bdd_norm": Spec(_conv("RelGraphConv", IN, OUT, TYPES, "bdd", 2, layer_norm=True), (X, ("et",))),
}
"""Layers whose nodes may have no in-edge, and that every graph and number of workers is tried with; of some, sar.nn has
its own."""

REFUSED: dict[str, Spec] = {
    "sort_pooling": Spec(_conv("SortPooling", 2), (X,), outputs="g"),
    "set_transformer_encoder": Spec(_conv("SetTransformerEncoder", IN, 2, 3, 5), (X,)),
    "set_transformer_decoder": Spec(_conv("SetTransformerDecoder", IN, 2, 3, 5, 1, 2), (X,), outputs="g"),
}
"""Layers that raise NotImplementedError on all ranks, saying what to do."""


class _EdgeNorm(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, graph: Any, weight: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.norm(graph, weight)
        return made


class _Attention(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, graph: Any, x: torch.Tensor) -> Any:
        return self.layer(graph, x, get_attention=True)


# ---- running ---------------------------------------------------------------


def spec_of(name: str) -> Spec:
    return FEW.get(name) or SPECS[name]


def make(name: str, seed: int = 11) -> nn.Module:
    """The layer of DGL with random parameters, all of the default dtype, which some are not there."""
    import dgl

    return random_layer(lambda: spec_of(name).make(dgl.nn), seed).to(torch.get_default_dtype())


def call(name: str, model: nn.Module, graph: Any, inputs: list[Any]) -> tuple[Any, ...]:
    """Runs the layer; tensors in a tuple, one for each letter of ``outputs``."""
    spec = spec_of(name)
    plain = len(inputs) - len(spec.keywords)
    out = model(graph, *inputs[:plain], **dict(zip(spec.keywords, inputs[plain:])))
    return out if isinstance(out, tuple) else (out,)


def tensors(inputs: list[Any]) -> list[Any]:
    """Leaves that need gradients where they are numbers."""
    return [
        torch.from_numpy(x).clone().requires_grad_(x.dtype.kind == "f") if isinstance(x, np.ndarray) else x
        for x in inputs
    ]


def layer(
    part: dict[str, Any],
    library: str,
    name: str,
    state: dict[str, np.ndarray],
    dtype: str,
    inputs: list[Any],
    grads: list[np.ndarray],
) -> dict[str, Any]:
    """A layer of "sar" or "dgl": outputs, gradients of inputs and (over all ranks) of parameters."""
    with default_dtype(getattr(torch, dtype)):
        graph = build(part)
        model = spec_of(name).make(importlib.import_module(f"{library}.nn")).to(torch.get_default_dtype())
        if spec_of(name).norm:
            model = sar.convert_batchnorm(model)
        model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        given = tensors(inputs)
        out = call(name, model, graph, given)
        values = [o.materialize() if hasattr(o, "materialize") else o for o in out]
        results = [v.detach().clone() for v in values]  # now: GroupRevRes takes its output's memory away in backward
        if any(v.requires_grad for v in values):
            torch.autograd.backward(values, [torch.from_numpy(g) for g in grads])
            sar.gather_grads(model)
        return numpy(
            {
                "out": results,
                "inputs": [x.grad if isinstance(x, torch.Tensor) else None for x in given],
                "parameters": {k: p.grad for k, p in model.named_parameters()},
            }
        )


def refused(part: dict[str, Any], name: str, x: np.ndarray) -> str:
    """What a layer that is not run says."""
    import dgl

    return refusal(lambda: REFUSED[name].make(dgl.nn)(build(part), torch.from_numpy(x)))


def draw(graph: Graph, name: str, dtype: str) -> list[Any]:
    """Inputs on the whole graph."""
    rng = np.random.default_rng(31)
    made: list[Any] = []
    for given in spec_of(name).inputs:
        if not isinstance(given, tuple):
            made.append(given)
            continue
        kind, shape = given[0], given[1:]
        if kind == "n":
            made.append(rng.standard_normal((graph.num_nodes, *shape)).astype(dtype))
        elif kind in "e+":
            values = rng.standard_normal((len(graph.src), *shape))
            made.append((np.abs(values) + 0.2 if kind == "+" else values).astype(dtype))
        elif kind == "nt":
            made.append(rng.integers(0, 2, graph.num_nodes))
        else:
            types = rng.integers(0, TYPES, len(graph.src))
            made.append(np.sort(types) if kind == "set" else types)
    return made
