"""Replacements of DGL's graph functions and transforms."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch

from sar.distributed.agreement import agreed_seed
from sar.errors import WholeGraphError
from sar.graph.manager import GraphShardManager
from sar.graph.refused import FUNCTIONS as INSTEAD
from sar.graph.reversed import ReversedGraph
from sar.graph.subgraph import edges_kept_at_random


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
    # whether sources and destinations are the same rows
    square = relation.canonical[0] == relation.canonical[2] and bool(getattr(g, "src_is_tgt", True))
    reversed_graph = ReversedGraph(g._state, relation, square)
    if copy_ndata:
        for key, value in g.dstdata.items():
            reversed_graph.srcdata[key] = value
        for key, value in g.srcdata.items():
            reversed_graph.dstdata[key] = value
    if copy_edata:
        reversed_graph.edata.update(g.edata)
    return reversed_graph


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


def _save_graphs(original: Any, *args: Any, **kwargs: Any) -> None:
    raise WholeGraphError("dgl.save_graphs", INSTEAD["save_graphs"])


FUNCTIONS: Dict[str, Callable[..., Any]] = {"reverse": _reverse}
"""Functions of ``dgl``: each is given the original and its arguments."""

REFUSED: Dict[str, Callable[..., Any]] = {"save_graphs": _save_graphs}
"""Likewise, of ``dgl`` alone: given a list of graphs, it reads none of them, and its error would say something else."""

TRANSFORMS: Dict[str, Callable[..., Any]] = {
    "DropEdge": _drop_edge,
    "FeatMask": _feat_mask,
}
"""Classes of ``dgl.transforms``, by what stands for their ``__call__``."""
