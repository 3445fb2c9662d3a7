"""Layers of ``torch_geometric.nn``, as they are, and how to call them: the same specifications for PyG and for the
workers."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
import torch
from torch import nn

import sar
from sar.autograd.fused import sage
from sar.graph.edge_index import blocks, lifted, reduce
from tests.parity.observed_models import fused
from tests.parity.one_piece import counted
from tests.support.graphs import Graph
from tests.support.worker import build, numpy, random_layer

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


def _nn() -> Any:
    import torch_geometric.nn

    return torch_geometric.nn


def _conv(name: str, *args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(_nn(), name)(*args, **kwargs)


def _mlp(*sizes: int) -> nn.Module:
    return nn.Sequential(*[layer for a, b in zip(sizes[:-1], sizes[1:]) for layer in (nn.Linear(a, b), nn.Tanh())])


SPECS: dict[str, Spec] = {
    "gcn": Spec(_conv("GCNConv", IN, OUT), XE),
    "gcn_weights": Spec(_conv("GCNConv", IN, OUT), (X, E, W)),
    "gcn_improved": Spec(_conv("GCNConv", IN, OUT, improved=True), (X, E, W)),
    "gcn_plain": Spec(_conv("GCNConv", IN, OUT, add_self_loops=False), XE),
    "gcn_bare": Spec(_conv("GCNConv", IN, OUT, normalize=False), XE),
    "sage": Spec(_conv("SAGEConv", IN, OUT), XE),
    "sage_square": Spec(_conv("SAGEConv", IN, IN, normalize=True), XE),
    "sage_wide": Spec(_conv("SAGEConv", IN, 2 * IN, bias=False), XE),
    "sage_pair": Spec(_conv("SAGEConv", (IN, EDGE), OUT, project=True, normalize=True), ([X, ("n", EDGE)], E)),
    "sage_max": Spec(_conv("SAGEConv", IN, OUT, aggr="max"), XE),
    "gin": Spec(lambda: _nn().GINConv(_mlp(IN, OUT), train_eps=True), XE),
    "gat": Spec(_conv("GATConv", IN, OUT, heads=HEADS), XE),
    "gat_plain": Spec(_conv("GATConv", IN, OUT, heads=HEADS, add_self_loops=False, concat=False, residual=True), XE),
    "gat_edges": Spec(_conv("GATConv", IN, OUT, heads=HEADS, edge_dim=EDGE), (X, E, EF)),
    "gat_pair": Spec(_conv("GATConv", (IN, EDGE), OUT, heads=HEADS), ([X, ("n", EDGE)], E)),
    "gatv2": Spec(_conv("GATv2Conv", IN, OUT, heads=HEADS), XE),
    "gatv2_edges": Spec(_conv("GATv2Conv", IN, OUT, heads=HEADS, edge_dim=EDGE, share_weights=True), (X, E, EF)),
    "transformer": Spec(_conv("TransformerConv", IN, OUT, heads=HEADS, beta=True), XE),
    "transformer_edges": Spec(_conv("TransformerConv", IN, OUT, heads=HEADS, edge_dim=EDGE), (X, E, EF)),
    "gine": Spec(lambda: _nn().GINEConv(_mlp(IN, OUT), edge_dim=EDGE), (X, E, EF)),
    "simple": Spec(_conv("SimpleConv", "mean", combine_root="sum"), (X, E, W)),
    "simple_mul": Spec(_conv("SimpleConv", "mul"), XE, how="values"),
    "cheb": Spec(_conv("ChebConv", IN, OUT, 3), XE, how="values"),
    "cheb_rw": Spec(_conv("ChebConv", IN, OUT, 2, normalization="rw"), (X, E, W), how="values"),
    "graph": Spec(_conv("GraphConv", IN, OUT), (X, E, W)),
    "graph_max": Spec(_conv("GraphConv", (IN, EDGE), OUT, aggr="max"), ([X, ("n", EDGE)], E)),
    "gated_graph": Spec(_conv("GatedGraphConv", IN, 2), (X, E, W)),
    "res_gated": Spec(_conv("ResGatedGraphConv", IN, OUT, edge_dim=EDGE), (X, E, EF), how="blocks"),
    "res_gated_plain": Spec(_conv("ResGatedGraphConv", IN, OUT), XE),
    "agnn": Spec(_conv("AGNNConv"), XE),
    "tag": Spec(_conv("TAGConv", IN, OUT), (X, E, W)),
    "arma": Spec(_conv("ARMAConv", IN, OUT, num_stacks=2, num_layers=2), XE, how="values"),
    "sg": Spec(_conv("SGConv", IN, OUT, K=2), XE),
    "ssg": Spec(_conv("SSGConv", IN, OUT, alpha=0.1, K=2), XE),
    "appnp": Spec(_conv("APPNP", 3, 0.2), XE),
    "mf": Spec(_conv("MFConv", IN, OUT), XE),
    "rgcn": Spec(_conv("RGCNConv", IN, OUT, TYPES), (X, E, ET)),
    "rgcn_bases": Spec(_conv("RGCNConv", IN, OUT, TYPES, num_bases=2, aggr="add"), (X, E, ET)),
    "rgcn_blocks": Spec(_conv("RGCNConv", IN, OUT, TYPES, num_blocks=2), (X, E, ET)),
    "fast_rgcn": Spec(_conv("FastRGCNConv", IN, OUT, TYPES), (X, E, ET), how="blocks"),
    "rgat": Spec(_conv("RGATConv", IN, OUT, TYPES, heads=HEADS), (X, E, ET), how="blocks"),
    "signed_first": Spec(_conv("SignedConv", IN, OUT, first_aggr=True), (X, E, E)),
    "signed": Spec(_conv("SignedConv", IN // 2, OUT, first_aggr=False), (X, E, E)),
    "dna": Spec(_conv("DNAConv", IN, heads=2), (("n", 2, IN), E), how="blocks"),
    "point_net": Spec(lambda: _nn().PointNetConv(_mlp(IN + 3, OUT), _mlp(OUT, OUT)), (X, ("n", 3), E), how="blocks"),
    "gmm": Spec(_conv("GMMConv", IN, OUT, EDGE, 2), (X, E, EF)),
    "gmm_separate": Spec(_conv("GMMConv", IN, OUT, EDGE, 2, separate_gaussians=True), (X, E, EF)),
    "nn": Spec(lambda: _nn().NNConv(IN, OUT, _mlp(EDGE, IN * OUT), aggr="mean"), (X, E, EF), how="blocks"),
    "cg": Spec(_conv("CGConv", IN, EDGE), (X, E, EF), how="blocks"),
    "edge_conv": Spec(lambda: _nn().EdgeConv(_mlp(2 * IN, OUT), aggr="mean"), XE, how="blocks"),
    "edge_conv_max": Spec(lambda: _nn().EdgeConv(nn.Sequential(nn.Linear(2 * IN, OUT), nn.ReLU())), XE, how="blocks"),
    "ppf": Spec(
        lambda: _nn().PPFConv(_mlp(IN + 4, OUT), add_self_loops=False), (X, ("n", 3), ("n", 3), E), how="blocks"
    ),
    "feast": Spec(_conv("FeaStConv", IN, OUT, heads=HEADS), XE, how="blocks"),
    "point_transformer": Spec(_conv("PointTransformerConv", IN, OUT), (X, ("n", 3), E), how="blocks"),
    "le": Spec(_conv("LEConv", IN, OUT), (X, E, W)),
    "pna": Spec(
        _conv("PNAConv", IN, OUT, ["mean", "min", "max", "std"], ["identity", "attenuation"], DEGREES, edge_dim=EDGE),
        (X, E, EF),
        how="blocks",
    ),
    "cluster_gcn": Spec(_conv("ClusterGCNConv", IN, OUT, diag_lambda=0.3), XE, how="values"),
    "gen": Spec(_conv("GENConv", IN, OUT, learn_t=True), XE, norm=True),
    "gen_edges": Spec(
        _conv("GENConv", IN, OUT, aggr="powermean", learn_p=True, edge_dim=EDGE), (X, E, EF), how="blocks", norm=True
    ),
    "gcn2": Spec(_conv("GCN2Conv", IN, 0.3, 0.5, 2), (X, X, E)),
    "wl_continuous": Spec(_conv("WLConvContinuous"), (X, E, W)),
    "film": Spec(_conv("FiLMConv", IN, OUT), XE),
    "film_types": Spec(_conv("FiLMConv", IN, OUT, TYPES), (X, E, ET)),
    "super_gat": Spec(lambda: _nn().SuperGATConv(IN, OUT, heads=HEADS).eval(), XE),
    "fa": Spec(_conv("FAConv", IN), (X, X, E)),
    "eg": Spec(_conv("EGConv", IN, OUT, ["symnorm", "max", "std"], num_heads=2), XE),
    "pdn": Spec(_conv("PDNConv", IN, OUT, EDGE, 5), (X, E, EF)),
    "general": Spec(_conv("GeneralConv", IN, OUT, EDGE, attention=True, heads=HEADS), (X, E, EF), how="blocks"),
    "heat": Spec(
        _conv("HEATConv", IN, OUT, TYPES, TYPES, 3, EDGE, 2, heads=HEADS), (X, E, ("nt",), ET, EF), how="blocks"
    ),
    "lg": Spec(_conv("LGConv"), XE),
    "point_gnn": Spec(
        lambda: _nn().PointGNNConv(_mlp(IN, 3), _mlp(3 + IN, OUT), _mlp(OUT, IN)), (X, ("n", 3), E), how="blocks"
    ),
    "anti_symmetric": Spec(_conv("AntiSymmetricConv", IN), XE),
    "dir": Spec(lambda: _nn().DirGNNConv(_nn().SAGEConv(IN, OUT)), XE, how="values"),
    "mix_hop": Spec(_conv("MixHopConv", IN, OUT), XE),
    "own_message": Spec(lambda: _own(), (X, E, EF), how="blocks"),
    "gcn_model": Spec(_conv("GCN", IN, 8, 2, OUT, norm="batch_norm", jk="cat"), XE, norm=True),
    "sage_model": Spec(_conv("GraphSAGE", IN, 8, 3, OUT, jk="lstm"), XE),
    "gat_model": Spec(_conv("GAT", IN, 8, 2, OUT, heads=2, v2=True), XE),
    "gin_model": Spec(_conv("GIN", IN, 8, 2, OUT, jk="max", train_eps=True), XE),
    "pna_model": Spec(
        _conv("PNA", IN, 8, 2, OUT, aggregators=["mean", "max", "std"], scalers=["identity", "linear"], deg=DEGREES),
        XE,
        how="blocks",
    ),
    "edge_cnn_model": Spec(_conv("EdgeCNN", IN, 8, 2, OUT, jk="last"), XE, how="blocks"),
    "deep_gcn_model": Spec(lambda: _deep(0), XE),
    "deep_gcn_again_model": Spec(lambda: _deep(1), XE),
    "hyper": Spec(_conv("HypergraphConv", IN, OUT), XE, how="values"),
}


def _deep(again: int) -> nn.Module:
    """DeepGCNLayer with residuals before and behind its layer; ``again``: computed again in backward."""
    layers = [
        _nn().DeepGCNLayer(_nn().GENConv(IN, IN, norm=None), nn.LayerNorm(IN), nn.ELU(), block, ckpt_grad=bool(again))
        for block in ("res+", "res", "plain", "dense")
    ]
    made: nn.Module = _nn().Sequential("x, e", [(layer, "x, e -> x") for layer in layers])
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
    "gps": Spec(lambda: _nn().GPSConv(IN, _nn().SAGEConv(IN, IN)), XE),
    "wl": Spec(_conv("WLConv"), (("nt",), E)),
    "mesh_cnn": Spec(_conv("MeshCNNConv", IN, OUT), XE),
    "graph_norm": Spec(lambda: _nn().Sequential("x, e", [(_nn().GraphNorm(IN), "x -> x")]), XE),
    "layer_norm": Spec(lambda: _nn().Sequential("x, e", [(_nn().LayerNorm(IN), "x -> x")]), XE),
    "pool": Spec(lambda: _nn().Sequential("x, e", [(lambda x: _nn().global_mean_pool(x, None), "x -> x")]), XE),
}
"""Layers that raise NotImplementedError on all ranks, saying what to do."""


def graph_index(part: dict[str, Any]) -> Any:
    return sar.pyg.edge_index(build(part))


# ---- running ---------------------------------------------------------------


def make(name: str, seed: int = 11) -> nn.Module:
    return random_layer(SPECS[name].make, seed)


def draw(graph: Graph, name: str, dtype: str) -> list[np.ndarray]:
    """Rows of nodes and edges of the whole graph, as the arguments name them."""
    rng = np.random.default_rng(31)
    made: list[np.ndarray] = []
    for kind, *shape in rows(name):
        if kind == "n":
            made.append(rng.standard_normal((graph.num_nodes, *shape)).astype(dtype))
        elif kind in ("e", "+"):
            values = rng.standard_normal((len(graph.src), *shape))
            made.append((np.abs(values) + 0.2 if kind == "+" else values).astype(dtype))
        elif kind == "01":
            made.append(rng.random((len(graph.src), *shape)).astype(dtype))
        elif kind == "nt":
            made.append(rng.integers(0, TYPES, graph.num_nodes))
        else:
            types = rng.integers(0, TYPES, len(graph.src))
            made.append(np.sort(types) if kind == "set" else types)
    return made


def rows(name: str) -> list[tuple[Any, ...]]:
    """The arguments that are rows of nodes or edges, in order."""

    def found(given: Any) -> list[tuple[Any, ...]]:
        if isinstance(given, list):
            return [row for each in given for row in found(each)]
        return [given] if isinstance(given, tuple) else []

    return found(list(SPECS[name].args))


def call(name: str, model: nn.Module, edge_index: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Runs the layer: its results."""
    left = iter(given)

    def filled(arg: Any) -> Any:
        if arg is E:
            return edge_index
        if isinstance(arg, list):
            return tuple(filled(each) for each in arg)
        return next(left) if isinstance(arg, tuple) else arg

    spec = SPECS[name]
    made = [filled(arg) for arg in spec.args]
    plain = len(made) - len(spec.names)
    out = model(*made[:plain], **dict(zip(spec.names, made[plain:])))
    return list(out) if isinstance(out, (tuple, list)) else [out]


def leaves(inputs: list[np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(x).clone().requires_grad_(x.dtype.kind == "f") for x in inputs]


def step(
    name: str, edge_index: Any, inputs: list[np.ndarray], grads: list[np.ndarray] | None, state: Any, dtype: str
) -> dict[str, Any]:
    """Results and all gradients.

    :param grads: of the results; drawn where there are none
    """
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        model = make(name)
        if state is not None and SPECS[name].norm:
            model = sar.convert_batchnorm(model)
        if state is not None:
            model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        saved = numpy(model.state_dict())
        given = leaves(inputs)
        out = call(name, model, edge_index, given)
        rng = np.random.default_rng(12)
        grads = grads or [rng.standard_normal(tuple(o.shape)).astype(dtype) for o in out]
        found = numpy([o.detach().clone() for o in out])
        torch.autograd.backward(out, [torch.from_numpy(g) for g in grads])
    finally:
        torch.set_default_dtype(torch.float32)
    parameters = {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in model.named_parameters()}
    return {
        "state": saved,
        "grads": grads,
        "out": found,
        "inputs": numpy([x.grad for x in given]),
        "parameters": numpy(parameters),
    }


@contextlib.contextmanager
def noted() -> Iterator[set[str]]:
    """How messages are computed: "blocks" of edges, or "values" of all edges that are no weights of a softmax."""
    found: set[str] = set()
    run, materialize = blocks.run, lifted.LiftedTensor.materialize

    def in_blocks(*args: Any) -> torch.Tensor:
        found.add("blocks")
        return run(*args)

    def values(self: Any) -> torch.Tensor:
        if sys._getframe(1).f_code.co_name != "expr":
            found.add("values")
        return materialize(self)

    lifted.LiftedTensor.materialize = values
    lifted.run = reduce.run = in_blocks
    try:
        yield found
    finally:
        lifted.LiftedTensor.materialize = materialize
        lifted.run = reduce.run = run


def layer(
    part: dict[str, Any],
    name: str,
    state: Any,
    dtype: str,
    inputs: list[np.ndarray],
    grads: list[np.ndarray],
    separate: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The same on a worker; of parameters it has a part of the gradient. ``separate``: ranks whose layers run their own
    steps; ``pieces``: how many SAGEConv ran in one piece."""
    edge_index = graph_index(part)
    with noted() as how, fused(sar.rank() not in separate), counted(sage._SageMean) as pieces:
        found = step(name, edge_index, inputs, grads, state, dtype)
    return {**found, "how": "values" if "values" in how else "blocks" if how else "fused", "pieces": len(pieces)}


def refused(part: dict[str, Any], name: str) -> str:
    """What a layer says that is not run."""
    edge_index = graph_index(part)
    rows = edge_index.edges.rows("v")
    x = torch.zeros(rows, dtype=torch.int64) if name == "wl" else torch.randn(rows, IN)
    try:
        REFUSED[name].make()(x, edge_index)
    except NotImplementedError as error:
        return str(error)
    return "nothing"


# ---- what else scripts do ------------------------------------------------------


def from_files(path: str, names: list[str], state: dict[str, np.ndarray]) -> dict[str, Any]:
    """A partition as PyG's data, and a GCN and a GAT on it: result and gradients by original node."""
    data = sar.pyg.load(path)
    model = _nn().Sequential("x, e", [(_nn().GCNConv(5, 8), "x, e -> x"), (_nn().GATConv(8, 3, heads=2), "x, e -> x")])
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    sar.sync_params(model)
    out = model(data.x, data.edge_index)
    mask = data.train_mask
    loss = torch.nn.functional.cross_entropy(out[mask], data.y[mask].long(), reduction="sum")
    loss.backward()
    sar.gather_grads(model)
    sizes = [data.num_nodes, data.num_edges, data.num_features, int(data.edge_index.numel()), data.edge_attr.shape[0]]
    columns = sorted(name for name in names if name in data)
    grads = {k: p.grad for k, p in model.named_parameters()}
    return numpy({"n_id": data.n_id, "out": out, "grads": grads, "sizes": sizes, "columns": columns})


def watched(part: dict[str, Any], x: np.ndarray, looks: bool) -> dict[str, Any]:
    """Layers of which one rank prints what passes through them, by hooks and in the message."""
    edge_index = graph_index(part)
    torch.manual_seed(3)
    layers = [_nn().GATConv(IN, IN, heads=1), _Shown(looks), _nn().EdgeConv(_mlp(2 * IN, IN), aggr="mean")]
    shown: list[str] = []
    if looks:
        for layer in (layers[0], layers[2]):
            layer.register_message_forward_pre_hook(lambda m, given: shown.append(repr(given)))
            layer.register_message_forward_hook(lambda m, given, out: shown.append(f"{out.shape} {out!r}"))
            layer.register_aggregate_forward_pre_hook(lambda m, given: shown.append(str(given)))
    h = given = torch.from_numpy(x.copy()).float().requires_grad_()
    for layer in layers:
        h = layer(h, edge_index)
    h.square().sum().backward()
    return numpy({"out": h, "x": given.grad, "shown": len(shown) + len(layers[1].shown)})


def _shown_class() -> Any:
    from torch_geometric.nn import MessagePassing

    class Shown(MessagePassing):
        def __init__(self, looks: bool) -> None:
            super().__init__(aggr="mean")
            self.looks, self.shown = looks, []
            self.linear = nn.Linear(IN, IN)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_i: torch.Tensor, x_j: torch.Tensor) -> torch.Tensor:
            made = self.linear(x_j - x_i).relu()
            if self.looks:
                self.shown.append(f"{made} {made.shape} {x_j!r}")
            return made

    return Shown


def _Shown(looks: bool) -> Any:
    torch.manual_seed(4)
    return _shown_class()(looks)


def said(part: dict[str, Any]) -> list[str]:
    """What goes wrong, and what it says."""
    edge_index = graph_index(part)
    from torch_geometric.utils import scatter, to_undirected  # as they are replaced

    looped = edge_index.of(edge_index.edges.with_loops())
    rows = edge_index.edges.rows("v")
    x = torch.randn(rows + 1, IN)
    message = torch.randn(rows, 2)[edge_index[0]]
    found = []
    for wrong in (
        lambda: _nn().SAGEConv(IN, OUT)(x, edge_index),
        lambda: _nn().GCNConv(IN, OUT)(x, edge_index),
        lambda: to_undirected(edge_index),
        lambda: scatter(message, looped[1]),
        lambda: message + torch.randn(rows, 2)[looped[1]],
        lambda: scatter(message, edge_index[0], reduce="max"),
        lambda: torch.cat([edge_index, torch.zeros(2, 1, dtype=torch.int64)], 1),
    ):
        try:
            wrong()
            found.append("nothing")
        except (ValueError, NotImplementedError) as error:
            found.append(str(error))
    return found


def numbers(part: dict[str, Any]) -> dict[str, Any]:
    """The numbers of an edge index, and what functions of torch make of it."""
    edge_index = graph_index(part)
    row, col = edge_index
    again = torch.stack([row, col])
    flipped = torch.stack([col, row])
    kept = edge_index[:, edge_index[0] != edge_index[1]]
    return numpy(
        {
            "edge_index": edge_index + 0,
            "column_nodes": edge_index.graph.column_nodes(),
            "flipped": edge_index.flip(0) + 0,
            "same": [again.edges is edge_index.edges, flipped.flipped, flipped.flip(0).flipped],
            "kept": kept + 0,
            "sizes": [tuple(edge_index.shape), edge_index.size(1), edge_index.numel(), len(row), row.numel()],
            "shown": [repr(edge_index), repr(row)],
            "type": [str(edge_index.dtype), edge_index.long() is edge_index, edge_index.to("cpu") is edge_index],
        }
    )
