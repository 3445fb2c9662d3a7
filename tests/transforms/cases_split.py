"""Whole-graph utilities on a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from tests.links.cases_fetch import built
from tests.support.worker import build, numpy, refusal


def own(part: dict[str, Any], ids: np.ndarray, weight: np.ndarray, begin: np.ndarray, memory: int) -> dict[str, Any]:
    """Ours, with weights and without, of a directed graph."""
    index, w = sar.pyg.edge_index(built(part, ids)), torch.from_numpy(weight)
    return numpy(
        {
            "random walk": sar.transforms.random_walk_pe(index, 5),
            "weighted random walk": sar.transforms.random_walk_pe(index, 5, w, memory=memory),
            "pagerank": sar.transforms.pagerank(index.graph),
            "weighted pagerank": sar.transforms.pagerank(index, 0.5, torch.from_numpy(begin), w, tolerance=1e-13),
            "degree profile": sar.transforms.degree_profile(index),
        }
    )


def undirected(part: dict[str, Any], ids: np.ndarray, weight: np.ndarray, memory: int) -> dict[str, Any]:
    """Ours, of an undirected graph."""
    index, w = sar.pyg.edge_index(built(part, ids)), torch.from_numpy(weight)
    found: dict[str, Any] = {"random walk": sar.transforms.random_walk_pe(index, 6, w, memory=memory)}
    how: dict[str, Any] = {"tolerance": 1e-12, "return_eigenvalues": True}
    found["plain"] = sar.transforms.laplacian_pe(index, 11, **how)
    found["weighted"] = sar.transforms.laplacian_pe(index.graph, 11, w, **how)
    found["loops"] = sar.transforms.laplacian_pe(index, 11, self_loops=True, **how)
    found["all"] = sar.transforms.laplacian_pe(index, index.graph.num_nodes_global() - 1, **how)
    torch.manual_seed(3 + sar.rank())
    found["signs"] = sar.transforms.laplacian_pe(index, 11, random_signs=True, **how)
    for name in (None, "sym", "rw"):
        found[f"largest {name}"] = sar.transforms.laplacian_lambda_max(index, w, name)
    return numpy(found)


def of_pyg(part: dict[str, Any], ids: np.ndarray, weight: np.ndarray, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """PyG's own functions and transforms."""
    return numpy(pyg(sar.pyg.edge_index(built(part, ids)), len(ids), weight, x, y))


def pyg(index: Any, nodes: int, weight: np.ndarray, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    import torch_geometric.transforms as T
    from torch_geometric import utils
    from torch_geometric.data import Data

    features, labels, w = torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(weight)
    data = Data(x=features, edge_index=index)
    found: dict[str, Any] = {}
    for name in (None, "sym", "rw"):
        for of in (None, w):
            made, entries = utils.get_laplacian(index, of, name, torch.float64, nodes)
            product = utils.scatter(entries.view(-1, 1) * features[made[1]], made[0], 0, nodes)
            found[f"laplacian {name}{'' if of is None else ' weighted'}"] = torch.as_tensor(product).clone()
    for method in ("edge", "node", "edge_insensitive"):
        found[f"homophily {method}"] = utils.homophily(index, labels, method=method)
    found["walk"] = T.AddRandomWalkPE(4)(data).random_walk_pe
    found["walk into x"] = T.AddRandomWalkPE(2, attr_name=None)(data).x
    found["profile"] = T.LocalDegreeProfile()(data).x
    found["eigenvectors"] = T.AddLaplacianEigenvectorPE(4, is_undirected=True)(data).laplacian_eigenvector_pe
    for name in (None, "sym"):
        found[f"largest {name}"] = T.LaplacianLambdaMax(name, is_undirected=True)(data).lambda_max
    return found


def of_dgl(part: dict[str, Any], y: np.ndarray) -> dict[str, Any]:
    """What stands for functions of DGL, given a graph."""
    graph, labels = build(part), torch.from_numpy(y)
    how: dict[str, Any] = {"self_loops": True, "return_eigenvalues": True}
    return numpy(
        {
            "walk": sar.transforms.random_walk_pe(graph, 4),
            "eigenvalues": sar.transforms.laplacian_pe(graph, 6, **how)[1],
            "node_homophily": sar.transforms.homophily(graph, labels, "node"),
            "edge_homophily": sar.transforms.homophily(graph, labels, "edge"),
            "linkx_homophily": sar.transforms.homophily(graph, labels, "edge_insensitive"),
        }
    )


def dgl_alone(graph: Any, y: np.ndarray) -> dict[str, Any]:
    import dgl

    names = ("node_homophily", "edge_homophily", "linkx_homophily")
    return {
        "walk": dgl.random_walk_pe(graph, 4),
        "eigenvalues": dgl.lap_pe(graph, 6, return_eigval=True)[1],
        **{name: getattr(dgl, name)(graph, torch.from_numpy(y)) for name in names},
    }


def wrong(part: dict[str, Any], ids: np.ndarray) -> dict[str, str]:
    index, first = sar.pyg.edge_index(built(part, ids)), sar.rank() == 0
    short = torch.ones(3 if first else index.edges.num_edges)
    tried = {
        "directed": lambda: sar.transforms.laplacian_pe(index, 2),
        "weights": lambda: sar.transforms.random_walk_pe(index, 2, short),
        "too many": lambda: sar.transforms.laplacian_pe(index, 61),
        "length": lambda: sar.transforms.random_walk_pe(index, 0),
        "alpha": lambda: sar.transforms.pagerank(index, 1.0),
        "begin": lambda: sar.transforms.pagerank(index, personalization=torch.zeros(len(ids))),
        "iterations": lambda: sar.transforms.pagerank(index, max_iterations=2),
        "method": lambda: sar.transforms.homophily(index, torch.zeros(len(ids)), "nodes"),
        "no graph": lambda: sar.transforms.degree_profile(torch.ones(2, 3)),
    }
    return {name: refusal(call) for name, call in tried.items()}
