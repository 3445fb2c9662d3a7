"""Replacements of DGL's graph functions and transforms."""

from __future__ import annotations

from typing import Any, Callable, Dict

import dgl
import torch

from sar.distributed.agreement import agreed_seed
from sar.errors import WholeGraphError
from sar.graph.manager import GraphShardManager
from sar.graph.reversed import ReversedGraph
from sar.graph.subgraph import edges_kept_at_random

__all__ = ["FUNCTIONS", "LOOPS", "REFUSED", "TRANSFORMS", "refusing"]


def _reverse(original: Any, g: Any, copy_ndata: bool = True, copy_edata: bool = False, **kwargs: Any) -> Any:
    if isinstance(g, ReversedGraph):
        raise NotImplementedError("this graph is reversed already: keep the graph that it was made of")
    if not isinstance(g, GraphShardManager):
        return original(g, copy_ndata, copy_edata, **kwargs)
    if len(g._relations) != 1:
        raise NotImplementedError(
            f"this graph has several relations: reverse one at a time, as dgl.reverse(graph[relation]); there are "
            f"{g.canonical_etypes}"
        )
    relation = g._relations[0]
    square = relation.canonical[0] == relation.canonical[2] and _square(g)
    reversed_graph = ReversedGraph(g._state, relation, square)
    if copy_ndata:
        for key, value in g.dstdata.items():
            reversed_graph.srcdata[key] = value
        for key, value in g.srcdata.items():
            reversed_graph.dstdata[key] = value
    if copy_edata:
        reversed_graph.edata.update(g.edata)
    return reversed_graph


def _square(graph: GraphShardManager) -> bool:
    """Whether sources and destinations are the same rows."""
    return bool(getattr(graph, "src_is_tgt", True))


def _add_self_loop(original: Any, g: Any, edge_feat_names: Any = None, fill_data: Any = 1.0, etype: Any = None) -> Any:
    if not isinstance(g, GraphShardManager):
        return original(g, edge_feat_names, fill_data, etype)
    if edge_feat_names is not None or isinstance(fill_data, str):
        raise NotImplementedError("self loops of a graph on several workers get one number in all columns of edges")
    return g.add_self_loop(fill_data)


def _remove_self_loop(original: Any, g: Any, etype: Any = None) -> Any:
    return g.remove_self_loop() if isinstance(g, GraphShardManager) else original(g, etype)


# ---- transforms --------------------------------------------------------------


def _drop_edge(original: Any, transform: Any, g: Any) -> Any:
    """Each edge of the whole graph is dropped with probability p: the same edges for any number of workers."""
    if not isinstance(g, GraphShardManager):
        return original(transform, g)
    g = g.clone()
    if transform.p > 0:
        g.keep_edges({r.canonical: edges_kept_at_random(r, float(transform.p)) for r in g._relations})
    return g


def _feat_mask(original: Any, transform: Any, g: Any) -> Any:
    """Columns of features are masked: the same ones on every worker, as rank 0 draws them."""
    if not isinstance(g, GraphShardManager):
        return original(transform, g)
    seed = agreed_seed()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return original(transform, g)


def _needs_whole_graph(original: Any, transform: Any, g: Any) -> Any:
    if isinstance(g, (GraphShardManager, ReversedGraph)):
        raise WholeGraphError(f"dgl.{type(transform).__name__}", BEFORE)
    return original(transform, g)


def _row_feat_normalizer(original: Any, transform: Any, g: Any) -> Any:
    if isinstance(g, (GraphShardManager, ReversedGraph)) and transform.subtract_min:
        raise WholeGraphError(
            "dgl.RowFeatNormalizer(subtract_min=True)", f"the smallest value is one of all rows. {BEFORE.capitalize()}"
        )
    return original(transform, g)


def _loops_added(original: Any, transform: Any, c_etype: Any, g: Any) -> Any:
    """DGL calls its function in the module that defines it, where that is not replaced."""
    if c_etype[0] != c_etype[2]:
        return g
    if not transform.allow_duplicate:
        g = dgl.remove_self_loop(g, etype=c_etype)
    return dgl.add_self_loop(g, transform.edge_feat_names, transform.fill_data, c_etype)


def _loops_removed(original: Any, transform: Any, c_etype: Any, g: Any) -> Any:
    """Likewise."""
    return dgl.remove_self_loop(g, etype=c_etype) if c_etype[0] == c_etype[2] else g


# ---- functions that need the whole graph --------------------------------------


def refusing(name: str, instead: str) -> Callable[..., Any]:
    """Stands for a function of ``dgl``, and refuses graphs on several workers."""

    def function(original: Any, *args: Any, **kwargs: Any) -> None:
        raise WholeGraphError(f"dgl.{name}", instead)

    return function


BEFORE = "it needs nodes and edges of all workers: apply it in DGL before the graph is partitioned"
_ENDS = "an edge is known to the owner of its destination alone: apply it in DGL before the graph is partitioned"
_COLUMNS = "convert the columns of graph.ndata and graph.edata"
_FILES = "partitions are files already: sar partition writes them, and sar.load_dgl_partition_data reads them"
_LARGEST = "pool with sum, mean, max or attention, or gather the features on one worker"
_BATCH = "the nodes of one graph are spread over the workers: a batch is made in DGL before it is partitioned"

REFUSED: Dict[str, str] = {
    **dict.fromkeys(["line_graph", "khop_adj", "khop_graph", "to_bidirected", "add_reverse_edges"], BEFORE),
    "compact_graphs": BEFORE,
    **dict.fromkeys(["laplacian_lambda_max", "metapath_reachable_graph", "to_simple", "to_simple_graph"], BEFORE),
    **dict.fromkeys(["sort_csr_by_tag", "sort_csc_by_tag", "metis_partition_assignment", "metis_partition"], BEFORE),
    **dict.fromkeys(["partition_graph_with_halo", "adj_product_graph", "adj_sum_graph", "reorder_graph"], BEFORE),
    **dict.fromkeys(["random_walk_pe", "laplacian_pe", "lap_pe", "svd_pe", "shortest_dist"], BEFORE),
    **dict.fromkeys(["double_radius_node_labeling", "to_networkx", "to_cugraph", "block_to_graph", "merge"], BEFORE),
    **dict.fromkeys(["to_homogeneous", "to_heterogeneous", "node_homophily", "edge_homophily"], BEFORE),
    **dict.fromkeys(["adjusted_homophily", "node_label_informativeness", "edge_label_informativeness"], BEFORE),
    **dict.fromkeys(["linkx_homophily", "node_subgraph", "edge_subgraph", "node_type_subgraph"], BEFORE),
    **dict.fromkeys(["edge_type_subgraph", "in_subgraph", "out_subgraph", "khop_in_subgraph"], BEFORE),
    **dict.fromkeys(["khop_out_subgraph", "to_block", "add_nodes", "add_edges", "remove_nodes"], BEFORE),
    **dict.fromkeys(["bfs_nodes_generator", "bfs_edges_generator", "topological_nodes_generator"], _ENDS),
    **dict.fromkeys(["dfs_edges_generator", "dfs_labeled_edges_generator", "prop_nodes", "prop_nodes_bfs"], _ENDS),
    **dict.fromkeys(["prop_nodes_topo", "prop_edges", "prop_edges_dfs"], _ENDS),
    **dict.fromkeys(["to_half", "to_float", "to_double", "to_bfloat16"], _COLUMNS),
    **dict.fromkeys(["batch", "unbatch", "slice_batch"], _BATCH),
    **dict.fromkeys(["topk_nodes", "topk_edges"], _LARGEST),
    "save_graphs": _FILES,
}
"""Functions of ``dgl`` and ``dgl.transforms`` that would take a worker's part for the graph: what to do instead."""


FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "reverse": _reverse,
    "add_self_loop": _add_self_loop,
    "remove_self_loop": _remove_self_loop,
}
"""Functions of ``dgl``: each is given the original and its arguments."""

LOOPS: Dict[str, Callable[..., Any]] = {"AddSelfLoop": _loops_added, "RemoveSelfLoop": _loops_removed}
"""Classes of ``dgl.transforms``, by what stands for their ``transform_etype``."""

TRANSFORMS: Dict[str, Callable[..., Any]] = {
    "DropEdge": _drop_edge,
    "FeatMask": _feat_mask,
    **dict.fromkeys(
        ["AddMetaPaths", "AddReverse", "GDC", "HeatKernel", "KHopGraph", "LineGraph", "NodeShuffle", "PPR", "ToLevi"]
        + ["ToSimple", "RandomWalkPE", "LaplacianPE", "LapPE", "SVDPE", "DropNode", "AddEdge"],
        _needs_whole_graph,
    ),
    "RowFeatNormalizer": _row_feat_normalizer,
}
"""Classes of ``dgl.transforms``, by what stands for their ``__call__``."""
