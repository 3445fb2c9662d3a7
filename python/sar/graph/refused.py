"""Errors of what looks at the whole graph: what was called, and what to do in place of it.

Graphs split over workers have the methods of DGL's graphs that they can answer. Of the others, those that scripts call
are in :data:`REFUSED`. Functions of libraries that read what such a graph does not have, or would take this worker's
edges for all there are, are recognized when they ask for it (:func:`refuse_libraries`): no function need be listed.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, Tuple

import torch

from sar.errors import WholeGraphError

_MATRIX = (
    "the matrix has edges of all workers. Multiply by it with update_all(copy_u, sum); compute what needs all of it, "
    "such as the singular vectors of dgl.svd_pe, in DGL before the graph is partitioned, and keep the result in ndata"
)
_ENDS = "an edge is known to the worker that owns its destination alone: use the ends in graph.edges()"
_NODES = "own nodes are 0 .. graph.num_nodes() - 1, and ndata['orig_id'] has the ids of your file"
_STRUCTURE = "nodes and edges are spread over the workers: change the graph before it is partitioned"
_SOME = "messages go to all destinations (update_all), or along some in-edges of each worker (send_and_recv)"
_BLOCKS = "the edges are on several workers. sar.DataLoader with sar.DistNeighborSampler draws blocks; " + (
    "sar.construct_mfgs makes those of all edges into some nodes"
)
_SUBGRAPH = (
    "a part of the nodes has neighbours on other workers. Take it before the graph is partitioned; leave edges out "
    "with graph.remove_edges; sar.construct_mfgs gives all edges into some nodes"
)
_BATCH = "the nodes of one graph are spread over the workers: a batch is made in DGL before it is partitioned"
BEFORE = "it needs nodes and edges of all workers: apply it in DGL before the graph is partitioned"


def _ours(call: str) -> str:
    return f"it needs nodes and edges of all workers: sar.transforms.{call} has them"


_OWNER = "an edge is known to the owner of its destination alone: apply it in DGL before the graph is partitioned"
_COLUMNS = "convert the columns of graph.ndata and graph.edata"
_FILES = "partitions are files already: sar partition writes them, and sar.load_dgl_partition_data reads them"
_LARGEST = "pool with sum, mean, max or attention, or gather the features on one worker"
_PAIRS = (
    "it relates each node to all nodes of the graph, which are on several workers: gather the features on one worker, "
    "or use attention over neighbours"
)
_BEFORE = (
    "it would take the edges of this worker for those of the whole graph. Apply it in DGL before the graph is "
    "partitioned, and keep what it gives as columns of nodes or edges"
)

REFUSED: Dict[str, str] = {
    **dict.fromkeys(["adj", "adj_external", "adj_tensors", "adjacency_matrix", "adj_sparse", "inc"], _MATRIX),
    **dict.fromkeys(["predecessors", "successors", "find_edges", "in_edges", "out_edges", "edge_ids"], _ENDS),
    **dict.fromkeys(["has_edges_between", "has_edge_between"], _ENDS),
    **dict.fromkeys(["has_nodes", "has_node"], _NODES),
    **dict.fromkeys(["add_nodes", "remove_nodes", "to_simple", "reverse", "line_graph"], _STRUCTURE),
    "add_edges": _STRUCTURE + " (add_self_loop works here as well)",
    **dict.fromkeys(["pull", "push", "prop_nodes", "prop_edges"], _SOME),
    **dict.fromkeys(["sample_neighbors", "sample_etype_neighbors", "select_topk"], _BLOCKS),
    **dict.fromkeys(["subgraph", "edge_subgraph", "in_subgraph", "out_subgraph"], _SUBGRAPH),
    **dict.fromkeys(["node_type_subgraph", "edge_type_subgraph", "khop_in_subgraph", "khop_out_subgraph"], _SUBGRAPH),
}
"""What to do in place of each method of a DGL graph."""

FUNCTIONS: Dict[str, str] = {
    **dict.fromkeys(["line_graph", "khop_adj", "khop_graph", "to_bidirected", "add_reverse_edges"], BEFORE),
    "compact_graphs": BEFORE,
    **dict.fromkeys(["metapath_reachable_graph", "to_simple", "to_simple_graph", "svd_pe", "shortest_dist"], BEFORE),
    **dict.fromkeys(["sort_csr_by_tag", "sort_csc_by_tag", "metis_partition_assignment", "metis_partition"], BEFORE),
    **dict.fromkeys(["partition_graph_with_halo", "adj_product_graph", "adj_sum_graph", "reorder_graph"], BEFORE),
    "random_walk_pe": _ours("random_walk_pe(graph, k)"),
    **dict.fromkeys(["laplacian_pe", "lap_pe"], _ours("laplacian_pe(graph, k, self_loops=True)")),
    "laplacian_lambda_max": _ours("laplacian_lambda_max(graph)"),
    **{f"{of}_homophily": _ours(f"homophily(graph, y, '{of}')") for of in ("node", "edge")},
    "linkx_homophily": _ours("homophily(graph, y, 'edge_insensitive')"),
    **dict.fromkeys(["double_radius_node_labeling", "to_networkx", "to_cugraph", "block_to_graph", "merge"], BEFORE),
    **dict.fromkeys(["to_homogeneous", "to_heterogeneous"], BEFORE),
    **dict.fromkeys(["adjusted_homophily", "node_label_informativeness", "edge_label_informativeness"], BEFORE),
    **dict.fromkeys(["node_subgraph", "edge_subgraph", "node_type_subgraph"], BEFORE),
    **dict.fromkeys(["edge_type_subgraph", "in_subgraph", "out_subgraph", "khop_in_subgraph"], BEFORE),
    **dict.fromkeys(["khop_out_subgraph", "to_block", "add_nodes", "add_edges", "remove_nodes"], BEFORE),
    **dict.fromkeys(["bfs_nodes_generator", "bfs_edges_generator", "topological_nodes_generator"], _OWNER),
    **dict.fromkeys(["dfs_edges_generator", "dfs_labeled_edges_generator", "prop_nodes", "prop_nodes_bfs"], _OWNER),
    **dict.fromkeys(["prop_nodes_topo", "prop_edges", "prop_edges_dfs"], _OWNER),
    **dict.fromkeys(["to_half", "to_float", "to_double", "to_bfloat16"], _COLUMNS),
    **dict.fromkeys(["batch", "unbatch", "slice_batch"], _BATCH),
    **dict.fromkeys(["topk_nodes", "topk_edges"], _LARGEST),
    "save_graphs": _FILES,
}
"""What to do in place of functions of ``dgl`` and ``dgl.transforms``."""

MISTAKEN: Dict[str, str] = {
    **dict.fromkeys(["AddMetaPaths", "AddReverse", "GDC", "HeatKernel", "KHopGraph", "LineGraph"], BEFORE),
    **dict.fromkeys(["NodeShuffle", "PPR", "ToLevi", "ToSimple"], BEFORE),
    "RandomWalkPE": FUNCTIONS["random_walk_pe"],
    **dict.fromkeys(["LaplacianPE", "LapPE"], FUNCTIONS["lap_pe"]),
    **dict.fromkeys(["SVDPE", "DropNode", "AddEdge"], BEFORE),
    **dict.fromkeys(["SetTransformerEncoder", "SetTransformerDecoder"], _PAIRS),
    **dict.fromkeys(["SortPooling", "_topk_on"], _LARGEST),
}
"""What to do in place of classes of DGL, and of a function, that read no more than ours has, and would take the rows of
a worker for all."""

_INSTEAD: Dict[str, str] = {
    **REFUSED,
    **dict.fromkeys(["random_walk", "node2vec_random_walk", "pinsage_neighbor_sampler"], _BLOCKS),
    **FUNCTIONS,
    **MISTAKEN,
}
"""What to do in place of what users call; of the rest :data:`_BEFORE`."""

_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")

ANSWERED: Tuple[str, ...] = ("dgl.nn.", "dgl.ops.", "dgl.readout.", "dgl.utils.", "dgl.transforms.module.")
ANSWERED += tuple(f"dgl.transforms.functional.{name}" for name in ("norm_by_dst", "remove_self_loop", "add_self_loop"))
"""Modules and functions of DGL that treat a graph by the methods that ours has as well."""


def _package(frame: Any) -> str:
    """The package whose code runs. What stands for a function of a library has the names of the library's module."""
    ours = frame.f_code.co_filename.startswith(_OWN)
    return "sar" if ours else str(frame.f_globals.get("__name__", "")).partition(".")[0]


def library_call() -> str:
    """The outermost function of DGL or PyG between the user's code and here, which is what the user called; empty where
    there is none."""
    frame: Any = sys._getframe(1)
    found: Any = None
    while frame is not None:
        home = _package(frame)
        if home in ("dgl", "torch_geometric"):
            found = frame
        elif home not in ("sar", "torch", "contextlib", "functools"):
            break
        frame = frame.f_back
    if found is None:
        return ""
    home, name = str(found.f_globals["__name__"]), str(found.f_code.co_name)
    if "self" in found.f_locals:
        kind = type(found.f_locals["self"]).__name__
        return kind if name in ("__call__", "forward", "__init__") else f"{kind}.{name}"
    return public_name(home, name)


def caller() -> str:
    """The function outside of SAR and torch that is nearest to here, under the module that defines it."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if _package(frame) not in ("sar", "torch", "contextlib", "functools"):
            return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def public_name(module: str, name: str) -> str:
    """The dotted name by which users know a function or class: in the outermost package that has it."""
    parts = module.split(".")
    packages = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    known = (package for package in packages if hasattr(sys.modules.get(package), name.partition(".")[0]))
    return f"{next(known, module)}.{name}"


def refusal(name: str, instead: str) -> WholeGraphError:
    """The error of something that looks at the whole graph.

    :param name: what does; the function of a library that it was called from is put in front
    :param instead: what to do in place of it
    """
    called = library_call()
    return WholeGraphError(f"{called} ({name})" if called else name, instead)


def refuse_libraries(what: str) -> None:
    """Raises an error where the method that calls this one was called by a function of DGL which would take what it
    gets for that of the whole graph.

    :param what: what the method gives, for the error
    :raises sar.WholeGraphError: naming the function of DGL
    """
    frame = sys._getframe(2)
    caller = f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"
    mistaken = frame.f_code.co_name in MISTAKEN or type(frame.f_locals.get("self")).__name__ in MISTAKEN
    if caller.startswith("dgl.") and (mistaken or not caller.startswith(ANSWERED)):
        called = library_call()
        raise WholeGraphError(called, f"{_INSTEAD.get(called.rpartition('.')[2], _BEFORE)} (it reads {what})")


def refuse_smallest(what: str) -> None:
    """Raises an error where the property that calls this one is read by a transform of DGL that takes the smallest of
    a worker's numbers for that of all.

    :param what: as for :func:`refuse_libraries`
    """
    frame = sys._getframe(2)
    if frame.f_code.co_name == "__call__":
        transform: Any = frame.f_locals.get("self")
        if type(transform).__name__ == "RowFeatNormalizer" and transform.subtract_min:
            raise WholeGraphError("RowFeatNormalizer(subtract_min=True)", f"{BEFORE} (it reads {what})")


class IsBlock:
    """``graph.is_block``: true. But functions of DGL other than layers are refused, because those that ask refuse
    blocks alone, and DGL's own layers are told that a full graph is none: they would take the destinations' rows as a
    slice of all rows, whose gradient is a tensor of zeros as large as the features, with a copy into it."""

    def __get__(self, graph: Any, kind: Any = None) -> bool:
        refuse_libraries("graph.is_block")
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return not (str(asks).startswith(("dgl.nn.", "dgl.utils.")) and getattr(graph, "src_is_tgt", False))


def _refusing(name: str, why: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise refusal(f"graph.{name}", FUNCTIONS.get(library_call().rpartition(".")[2], why))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Raises sar.WholeGraphError: {why}."
    return method


class GraphIndex:
    """Takes the place of a DGL graph's C++ half, and refers to the graph manager."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def number_of_etypes(self) -> int:
        """One, so that functions of ``dgl.ops`` hand over what they are given as it is, by relation or not."""
        return 1

    def __getattr__(self, name: str) -> Any:
        raise refusal(
            f"graph._graph.{name}",
            "it is inside DGL's C++ graph. Use the methods of the graph itself; dgl.ops take one relation at a time, "
            "graph[relation]",
        )


class Refused:
    """What a graph manager inherits to refuse them on every worker alike, before anything is sent."""

    @property
    def _graph(self) -> GraphIndex:
        """In DGL the graph's C++ half, which ``dgl.ops`` hand to functions that are replaced."""
        refuse_libraries("graph._graph")
        return GraphIndex(self)

    @property
    def device(self) -> torch.device:
        """Where the graph is: the CPU."""
        refuse_libraries("graph.device")
        return torch.device("cpu")

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Its type: what isinstance asks for where that is of no help, as in functions that want a graph of DGL.
        ``dgl.nn.Sequential`` treats all that are none as a mistake."""
        refuse_libraries("its class")
        if sys._getframe(1).f_globals.get("__name__") == "dgl.nn.pytorch.utils":
            return sys.modules["dgl"].DGLGraph
        return type(self)

    def __getattr__(self, name: str) -> Any:
        refuse_libraries(f"graph.{name}")
        return object.__getattribute__(self, name)  # python's own error, also that of a property


for _name, _why in REFUSED.items():
    setattr(Refused, _name, _refusing(_name, _why))
