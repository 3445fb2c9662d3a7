"""Replacements in torch_geometric that let its layers run on split graphs.

Layers are not edited. They work because functions of torch on an edge index of a split graph, and on what is made of
it, are overridden. What is replaced here are functions of torch_geometric whose steps would compute the values of all
edges, or would look at the numbers of the whole graph. On other tensors all of them behave as before.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple
from weakref import WeakSet

import torch
import torch_geometric.nn  # noqa: F401  the modules whose names are replaced
from torch import Tensor
from torch_geometric.utils import get_laplacian

from sar.autograd import expression
from sar.autograd.compile import uncompiled
from sar.config import Config
from sar.graph.counts import counts
from sar.graph.edge_index.edges import SplitEdges
from sar.graph.edge_index.ends import EdgeEnds, lift
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_index.lifted import LiftedTensor
from sar.graph.edge_index.reduce import reduced
from sar.graph.edge_tensor.source_softmax import source_softmax
from sar.graph.edge_tensor.tensor import as_expr, values
from sar.graph.readout import graph_reduce
from sar.integrations.replacements import Patches

from . import fused, hetero, scripts

SORTED = tuple(
    getattr(torch_geometric.nn.aggr, name)
    for name in ("LSTMAggregation", "GRUAggregation", "MLPAggregation", "SortAggregation", "GraphMultisetTransformer")
    + ("SetTransformerAggregation", "PatchTransformerAggregation", "LCMAggregation", "QuantileAggregation")
)
"""Aggregations that want their messages sorted by destination, or some at the first one."""

__all__ = ["adapt", "restore"]

OTHERWISE = "Install a version that SAR supports (2.7 or 2.8), or set sar.Config.patch_pyg = False"

_applied: Optional[Patches] = None


def adapt() -> None:
    """Makes torch_geometric's layers work on edge indices of split graphs. Idempotent.

    :raises RuntimeError: this version of torch_geometric lacks a name that is replaced; nothing is replaced then
    """
    global _applied
    if _applied is not None or not Config.patch_pyg:
        return
    patches = Patches("torch_geometric", OTHERWISE)
    for path, function in FUNCTIONS.items():
        patches.wrap_everywhere(f"torch_geometric.{path}", function)
    for module in ANY_ORDER:
        patches.wrap(f"torch_geometric.nn.conv.{module}", "add_self_loops", _add_self_loops_in_any_order)
    patches.wrap("torch_geometric.nn.aggr.Aggregation", "__call__", _aggregate_sorted)
    patches.wrap("torch_geometric.nn.SAGEConv", "forward", fused.sage_conv)
    patches.wrap("torch_geometric.nn.ChebConv", "forward", _cheb_conv)
    patches.wrap("torch_geometric.nn.HypergraphConv", "forward", _hypergraph_conv)
    for path, method in scripts.METHODS.items():
        owner, _, name = f"torch_geometric.{path}".rpartition(".")
        patches.wrap(owner, name, method)
    patches.wrap("torch_geometric.nn.HeteroDictLinear", "initialize_parameters", hetero.initialize)
    patches.wrap("torch_geometric.data.HeteroData", "to_homogeneous", hetero.to_homogeneous)
    for name, forward in hetero.LAYERS.items():
        patches.wrap(f"torch_geometric.nn.{name}", "forward", forward)
    for name in OVER_NODES:
        patches.wrap(f"torch_geometric.nn.{name}", "forward", _refusing_own_rows(name))
    for layer, why in REFUSED.items():
        patches.wrap(f"torch_geometric.nn.{layer}", "forward", _refusing(layer, why))
    patches.apply()
    _applied = patches


def restore() -> None:
    """Undoes all replacements."""
    global _applied
    if _applied is not None:
        _applied.undo()
        _applied = None


# ---- sums and softmaxes by ends of edges -----------------------------------------

REDUCERS = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min"}


def _scatter(
    original: Any, src: Tensor, index: Any, dim: int = 0, dim_size: Optional[int] = None, reduce: str = "sum"
) -> Tensor:
    if not isinstance(index, EdgeEnds):
        return original(src, index, dim, dim_size, reduce)
    _check_size(index, dim_size)
    if reduce not in REDUCERS:
        return original(values(src), _destinations(index), dim, index.edges.rows(index.side), reduce)
    return reduced(index.edges, index.side, src, dim % src.dim(), REDUCERS[reduce])


def _softmax(
    original: Any,
    src: Tensor,
    index: Any = None,
    ptr: Optional[Tensor] = None,
    num_nodes: Optional[int] = None,
    dim: int = 0,
) -> Tensor:
    if not isinstance(index, EdgeEnds):
        return original(src, index, ptr, num_nodes, dim)
    _check_size(index, num_nodes)
    if dim % src.dim():
        moved = _softmax(original, values(src).movedim(dim, 0), index, ptr, num_nodes, 0)
        return values(moved).movedim(0, dim)
    return _softmax_at(index, src)


@uncompiled
def _softmax_at(index: EdgeEnds, src: Tensor) -> Tensor:
    edges = index.edges
    if index.side == "u":
        return source_softmax([edges.relation], [src])[0]
    return LiftedTensor(edges, expression.softmax(as_expr(src, "e")))


def _degree(original: Any, index: Any, num_nodes: Optional[int] = None, dtype: Optional[torch.dtype] = None) -> Tensor:
    if not isinstance(index, EdgeEnds):
        return original(index, num_nodes, dtype)
    _check_size(index, num_nodes)
    return index.edges.relation.degrees(out=index.side == "u").to(dtype or torch.get_default_dtype())


def _destinations(index: EdgeEnds) -> Tensor:
    """Rows of destinations, for functions that look at all edges of a node."""
    if index.side == "u":
        raise NotImplementedError(
            "this reduction over the out-edges of each node, which end on several workers, is not computed: sum, mean "
            'and softmax are; or give the graph with its edges reversed and flow="source_to_target"'
        )
    return index.numbers()


def _check_size(index: EdgeEnds, size: Optional[int]) -> None:
    own = index.edges.rows(index.side)
    if size is not None and size != own:
        raise ValueError(
            f"a size of {size} nodes was given, and this worker owns {own}: tensors of nodes have a row for each node "
            "that this worker owns, as data.x has"
        )


def _check_edges(edges: SplitEdges, column: Optional[Tensor]) -> None:
    if column is not None and len(column) != edges.num_edges:
        raise ValueError(
            f"a tensor of shape {tuple(column.shape)} was given for {edges.num_edges} edges: tensors of edges have a "
            "row for each in-edge of own nodes, as data.edge_attr has, and belong to the edge_index that they came with"
        )


def _aggregate_sorted(original: Any, module: Any, x: Tensor, index: Any = None, *args: Any, **kwargs: Any) -> Tensor:
    """For aggregations that take messages in the order of their destinations: those of a node in the order of edges."""
    if not isinstance(index, EdgeEnds) or not isinstance(module, SORTED):
        return original(module, x, index, *args, **kwargs)
    dim = kwargs.get("dim", args[2] if len(args) > 2 else -2)
    rows, order = _destinations(index).sort(stable=True)
    x, own = values(x).index_select(dim, order), index.edges.rows("v")
    # Two messages to one more node in front: quantiles fail where the first node has none, or where there is but one.
    shape = list(x.shape)
    shape[dim] = 2
    x = torch.cat([x.new_zeros(shape), x], dim)
    rows = torch.cat([rows.new_zeros(2), rows + 1])
    return original(module, x, rows, **{**kwargs, "ptr": None, "dim_size": own + 1, "dim": dim}).narrow(dim, 1, own)


# ---- self loops ------------------------------------------------------------------


def _remove_self_loops(original: Any, edge_index: Any, edge_attr: Optional[Tensor] = None) -> Any:
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, edge_attr)
    edges = edge_index.edges
    _check_edges(edges, edge_attr)
    if edge_attr is not None and not edges.loops().none:
        edge_attr = edge_attr[_no_loop(edges)]
    return edge_index.of(edges.without_loops()), edge_attr


def _add_self_loops(
    original: Any,
    edge_index: Any,
    edge_attr: Optional[Tensor] = None,
    fill_value: Any = None,
    num_nodes: Any = None,
    any_order: bool = False,
) -> Any:
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, edge_attr, fill_value, num_nodes)
    size = min(num_nodes) if isinstance(num_nodes, (tuple, list)) else num_nodes
    _check_size(edge_index.end(1), size)
    if edge_attr is not None:
        _check_edges(edge_index.edges, edge_attr)
        return original(edge_index, edge_attr, fill_value, edge_index.edges.rows("v"))
    return edge_index.of(edge_index.edges.with_loops(any_order)), None


def _add_self_loops_in_any_order(original: Any, edge_index: Any, *args: Any, **kwargs: Any) -> Any:
    """For layers that have no tensors of edges but those that they give with the edge index."""
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, *args, **kwargs)
    return _add_self_loops(original, edge_index, *args, **{**kwargs, "any_order": True})


def _add_remaining_self_loops(
    original: Any,
    edge_index: Any,
    edge_attr: Optional[Tensor] = None,
    fill_value: Any = None,
    num_nodes: Optional[int] = None,
) -> Any:
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, edge_attr, fill_value, num_nodes)
    edges = edge_index.edges
    _check_size(edge_index.end(1), num_nodes)
    _check_edges(edges, edge_attr)
    if edge_attr is not None:
        own = torch.stack([edges.numbers()[1]] * 2)
        own[0] = edges.numbers()[0]
        _, edge_attr = original(own, values(edge_attr), fill_value, edges.rows("v"))
    return edge_index.of(edges.without_loops().with_loops()), edge_attr


def _contains_self_loops(original: Any, edge_index: Any) -> bool:
    if not isinstance(edge_index, SplitEdgeIndex):
        return bool(original(edge_index))
    return not edge_index.edges.loops().none


def _no_loop(edges: SplitEdges) -> Tensor:
    columns, rows = edges.numbers()
    return columns != rows


# ---- graph convolution -------------------------------------------------------------


def _gcn_norm(
    original: Any,
    edge_index: Any,
    edge_weight: Optional[Tensor] = None,
    num_nodes: Optional[int] = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: Optional[torch.dtype] = None,
) -> Any:
    """Without weights, the normalization is a product of one number of the source and one of the destination."""
    if not isinstance(edge_index, SplitEdgeIndex) or edge_weight is not None:
        return original(edge_index, edge_weight, num_nodes, improved, add_self_loops, flow, dtype)
    _check_size(edge_index.end(1), num_nodes)
    edges = edge_index.edges
    if add_self_loops:
        edges = edges.without_loops().with_loops(any_order=True)
    edge_index = edge_index.of(edges)
    source, target = edge_index
    counted = target if flow == "source_to_target" else source
    degrees = edges.relation.degrees(out=counted.side == "u").to(dtype or torch.get_default_dtype())
    norm = degrees.pow(-0.5)
    norm.masked_fill_(norm == float("inf"), 0.0)
    return edge_index, lift(norm, 0, source) * lift(norm, 0, target)


def _cheb_conv(
    original: Any,
    layer: Any,
    x: Tensor,
    edge_index: Any,
    edge_weight: Optional[Tensor] = None,
    batch: Optional[Tensor] = None,
    lambda_max: Optional[Tensor] = None,
) -> Tensor:
    """Where the largest eigenvalue is not given, PyG takes twice the largest weight; here, of the weights of all
    workers. Collective."""
    if isinstance(edge_index, SplitEdgeIndex) and lambda_max is None:
        index, weight = get_laplacian(
            *_remove_self_loops(None, edge_index, edge_weight), layer.normalization, x.dtype, x.shape[0]
        )
        edges: Any = counts([index.edges.num_edges], [index.edges.num_edges_global])
        lambda_max = 2.0 * graph_reduce(edges, values(weight), "max").squeeze(0)
    return original(layer, x, edge_index, edge_weight, batch, lambda_max)


def _hypergraph_conv(
    original: Any,
    layer: Any,
    x: Tensor,
    hyperedge_index: Any,
    hyperedge_weight: Optional[Tensor] = None,
    hyperedge_attr: Optional[Tensor] = None,
    num_edges: Optional[int] = None,
) -> Tensor:
    """PyG counts hyperedges by the largest number among them."""
    if isinstance(hyperedge_index, SplitEdgeIndex) and num_edges is None:
        num_edges = hyperedge_index.edges.rows("v")
    return original(layer, x, hyperedge_index, hyperedge_weight, hyperedge_attr, num_edges)


def _maybe_num_nodes(original: Any, edge_index: Any, num_nodes: Optional[int] = None) -> int:
    if num_nodes is not None:
        return num_nodes
    if isinstance(edge_index, EdgeEnds):
        return edge_index.edges.rows(edge_index.side)
    if isinstance(edge_index, SplitEdgeIndex):
        return max(edge_index.edges.rows(side) for side in "uv")
    return int(original(edge_index, num_nodes))


# ---- what needs the whole graph ------------------------------------------------------


def _refusing(layer: str, why: str) -> Callable[..., Any]:
    def forward(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(a, SplitEdgeIndex) for a in (*args, *kwargs.values())):
            raise NotImplementedError(f"{layer} on a graph split over workers {why}")
        return original(module, *args, **kwargs)

    return forward


split: WeakSet[SplitEdges] = WeakSet()
"""The edges of graphs that are split over several workers."""


def _refusing_own_rows(name: str) -> Callable[..., Any]:
    def over_nodes(original: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        module = args[0] if args and isinstance(args[0], torch.nn.Module) else None
        own = {edges.rows("v") for edges in split}
        if tensors and len(tensors[0]) in own and getattr(module, "mode", "graph") == "graph":
            raise NotImplementedError(
                f"{name} on a graph split over workers would see this worker's nodes alone: reduce with "
                "sar.comm.all_reduce, or use sar.convert_batchnorm(model) with torch_geometric.nn.BatchNorm. For other "
                f"tensors, which happen to have {len(tensors[0])} rows too, set sar.Config.patch_pyg = False"
            )
        return original(*args, **kwargs)

    return over_nodes


REFUSED = {
    "GPSConv": "would relate each node to the nodes of its worker, not to all: use attention over neighbours",
    "WLConv": "would number colours on each worker by itself: colour the whole graph before it is partitioned",
    "MeshCNNConv": "takes the messages of a node by their position among all edges: use it on the whole graph",
    "PANConv": "multiplies sparse matrices of the whole graph: use MixHopConv or TAGConv",
}
"""Layers that would give other results than on the whole graph, with what to do."""

OVER_NODES = ["GraphNorm", "InstanceNorm", "PairNorm", "GraphSizeNorm", "MeanSubtractionNorm", "DiffGroupNorm"]
OVER_NODES += ["LayerNorm"]  # with mode="graph"
"""Normalizations by all nodes of a graph."""

WHOLE = ["is_undirected", "to_undirected", "coalesce", "sort_edge_index", "subgraph", "k_hop_subgraph", "to_dense_adj"]
WHOLE += ["negative_sampling", "to_scipy_sparse_matrix", "to_networkx", "to_torch_coo_tensor", "to_torch_csr_tensor"]
WHOLE += ["remove_isolated_nodes", "contains_isolated_nodes", "hetero.group_hetero_graph"]
WHOLE += ["hetero.construct_bipartite_edge_index", "structured_negative_sampling", "batched_negative_sampling"]
WHOLE += ["homophily", "assortativity", "get_ppr", "bipartite_subgraph", "segregate_self_loops", "dropout_path"]
WHOLE += [
    "dropout_adj",
    "unbatch_edge_index",
    "to_torch_csc_tensor",
    "to_torch_sparse_tensor",
    "train_test_split_edges",
]
WHOLE += ["dropout_node", "add_random_edge", "to_dgl", "to_networkit", "to_cugraph", "get_self_loop_attr"]
"""Functions of torch_geometric.utils that are refused."""

FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "utils.scatter": _scatter,
    "utils.softmax": _softmax,
    "utils.degree": _degree,
    "utils.remove_self_loops": _remove_self_loops,
    "utils.add_self_loops": _add_self_loops,
    "utils.add_remaining_self_loops": _add_remaining_self_loops,
    "utils.contains_self_loops": _contains_self_loops,
    "utils.num_nodes.maybe_num_nodes": _maybe_num_nodes,
    "utils.dropout_edge": scripts.dropout_edge,
    "nn.conv.gcn_conv.gcn_norm": _gcn_norm,
    "nn.conv.han_conv.group": hetero.group,
    **{f"utils.{name}": scripts.needs_whole_graph for name in WHOLE},
    **{f"nn.global_{name}_pool": _refusing_own_rows(f"global_{name}_pool") for name in ("add", "mean", "max")},
}
"""Functions of torch_geometric: each is given the original and its arguments."""

ANY_ORDER: Tuple[str, ...] = ("gat_conv", "gatv2_conv", "supergat_conv", "agnn_conv", "feast_conv")
"""Layers that add self loops to edges of which they have no other tensors."""
