"""DGL's positional encodings and homophilies, over the nodes and edges of all workers."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch
from torch import Tensor

from sar.graph.manager import GraphShardManager
from sar.transforms import MEMORY, MOST, homophily

__all__ = ["FUNCTIONS", "TRANSFORMS"]

EXACT = 1e-10
"""The largest norm of ``L v - value v``: DGL's eigenvectors are as exact as can be."""


def _random_walk_pe(original: Any, g: Any, k: int, eweight_name: Optional[str] = None) -> Any:
    if not isinstance(g, GraphShardManager):
        return original(g, k, eweight_name)
    from sar.transforms import adjacency, walks

    weight = None if eweight_name is None else g.edata[eweight_name]
    found = adjacency.adjacency_of("dgl.random_walk_pe", g, weight)
    return walks.landing(found, k, found.degrees(out=True), torch.float32, MEMORY)


def _lap_pe(original: Any, g: Any, k: int, padding: bool = False, return_eigval: bool = False) -> Any:
    """DGL counts self loops, pads whether it is asked to or not, and flips signs at random."""
    if not isinstance(g, GraphShardManager):
        return original(g, k, padding, return_eigval)
    from sar.transforms import adjacency, laplacian

    made = adjacency.adjacency_of("dgl.lap_pe", g)
    there = min(k, made.num_nodes - 1)
    found = laplacian.eigenvectors(made, there, True, EXACT, MOST)
    vectors = laplacian.random_signs(found.vectors).float()
    pe = torch.cat([vectors, vectors.new_zeros(made.num_own, k - there)], 1)
    values = torch.cat([found.values.float(), torch.full((k - there,), float("nan"))])
    return (pe, values) if return_eigval else pe


def _lambda_max(original: Any, g: Any) -> Any:
    if not isinstance(g, GraphShardManager):
        return original(g)
    from sar.transforms import adjacency, laplacian

    made = adjacency.adjacency_of("dgl.laplacian_lambda_max", g)
    return [laplacian.largest(made, "sym", EXACT, MOST, True)]


def _homophily(method: str) -> Callable[..., Any]:
    def function(original: Any, graph: Any, y: Tensor) -> Any:
        return homophily(graph, y, method) if isinstance(graph, GraphShardManager) else original(graph, y)

    return function


def _random_walk_transform(original: Any, transform: Any, g: Any) -> Any:
    if not isinstance(g, GraphShardManager):
        return original(transform, g)
    g.ndata[transform.feat_name] = _random_walk_pe(original, g, transform.k, transform.eweight_name)
    return g


def _lap_transform(original: Any, transform: Any, g: Any) -> Any:
    if not isinstance(g, GraphShardManager):
        return original(transform, g)
    pe, values = _lap_pe(original, g, transform.k, transform.padding, True)
    if getattr(transform, "eigval_name", None):
        g.ndata[transform.eigval_name] = values.expand(len(pe), -1).clone()
    g.ndata[transform.feat_name] = pe
    return g


FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "random_walk_pe": _random_walk_pe,
    "lap_pe": _lap_pe,
    "laplacian_pe": _lap_pe,
    "laplacian_lambda_max": _lambda_max,
    "node_homophily": _homophily("node"),
    "edge_homophily": _homophily("edge"),
    "linkx_homophily": _homophily("edge_insensitive"),
}
"""Functions of ``dgl``: each is given the original and its arguments."""

TRANSFORMS: Dict[str, Callable[..., Any]] = {"RandomWalkPE": _random_walk_transform, "LapPE": _lap_transform}
"""Classes of ``dgl.transforms``, by what stands for their ``__call__``."""
