"""Replacements of DGL's graph functions and transforms."""

from __future__ import annotations

from typing import Any, Callable, Dict

import dgl
import torch

from sar.distributed.agreement import agreed_seed
from sar.errors import WholeGraphError
from sar.graph.manager import GraphShardManager
from sar.graph.refused import BEFORE, FUNCTIONS as INSTEAD
from sar.graph.reversed import ReversedGraph
from sar.graph.subgraph import edges_kept_at_random

__all__ = ["FUNCTIONS", "LOOPS", "REFUSED", "TRANSFORMS"]


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


def _row_feat_normalizer(original: Any, transform: Any, g: Any) -> Any:
    if isinstance(g, (GraphShardManager, ReversedGraph)) and transform.subtract_min:
        raise WholeGraphError(
            "dgl.RowFeatNormalizer(subtract_min=True)",
            f"the smallest value is one of all rows. {BEFORE[0].upper()}{BEFORE[1:]}",
        )
    return original(transform, g)


def _loops_added(original: Any, transform: Any, c_etype: Any, g: Any) -> Any:
    """DGL calls its function in the module that defines it, where that is not replaced."""
    if c_etype[0] != c_etype[2]:
        return g
    if not transform.allow_duplicate:
        g = dgl.remove_self_loop(g, etype=c_etype)
    return dgl.add_self_loop(g, transform.edge_feat_names, transform.fill_data, c_etype)


FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "reverse": _reverse,
    "add_self_loop": _add_self_loop,
}
"""Functions of ``dgl``: each is given the original and its arguments."""


def _refused(name: str) -> Callable[..., Any]:
    def function(original: Any, *args: Any, **kwargs: Any) -> None:
        raise WholeGraphError(f"dgl.{name}", INSTEAD[name])

    return function


REFUSED = {name: _refused(name) for name in ("save_graphs", "to_cugraph")}
"""Functions of ``dgl`` whose own errors, on a graph that is split, would say something else."""

LOOPS: Dict[str, Callable[..., Any]] = {"AddSelfLoop": _loops_added}
"""Classes of ``dgl.transforms``, by what stands for their ``transform_etype``."""

TRANSFORMS: Dict[str, Callable[..., Any]] = {
    "DropEdge": _drop_edge,
    "FeatMask": _feat_mask,
    "RowFeatNormalizer": _row_feat_normalizer,
}
"""Classes of ``dgl.transforms``, by what stands for their ``__call__``."""
