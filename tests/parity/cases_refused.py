"""What looks at the whole graph, tried on graphs split over workers."""

from __future__ import annotations

import warnings
from typing import Any, Callable

import numpy as np
import torch
import torch.nn.functional as F

import sar
from tests.support.worker import build, numpy

Tries = dict[str, Callable[[], Any]]


def of_torch(part: dict[str, Any]) -> Tries:
    """Functions of torch on an edge index or a row of it."""
    index = sar.pyg.edge_index(build(part))
    row, col = index
    rows, n = index.edges.rows("v"), index.shape[1]
    x = torch.ones(rows, 3)
    return {
        "Tensor.int": lambda: index.int(),
        "Tensor.float": lambda: row.float(),
        "Tensor.to": lambda: index.to(torch.int32),
        "Tensor.t": lambda: index.t(),
        "Tensor.T": lambda: index.T,
        "Tensor.__getitem__": lambda: index[:, :5],
        "Tensor.max": lambda: int(index.max()) + 1,
        "torch.max": lambda: torch.max(row),
        "Tensor.tolist": lambda: index.tolist(),
        "Tensor.numpy": lambda: row.numpy(),
        "torch.unique": lambda: torch.unique(row),
        "Tensor.sort": lambda: row.sort(),
        "Tensor.lt": lambda: row < col,
        "Tensor.__eq__": lambda: row == 3,
        "Tensor.mul": lambda: row * rows + col,
        "Tensor.view": lambda: index.view(-1),
        "Tensor.nonzero": lambda: row.nonzero(),
        "Tensor.__contains__": lambda: 3 in row,
        "Tensor.unbind": lambda: list(row),
        "torch.isin": lambda: torch.isin(row, torch.arange(3)),
        "aten._sparse_coo_tensor": lambda: torch.sparse_coo_tensor(index, torch.ones(n), (rows, rows)),
        "Tensor.__setitem__": lambda: torch.zeros(rows).__setitem__(col, torch.ones(n)),
        "torch.scatter": lambda: torch.scatter(torch.zeros(rows), 0, row, torch.ones(n)),
        "torch.cat": lambda: torch.cat([index, index.flip(0)], 1),
        "torch.take": lambda: torch.take(x, row),
        "torch.nn.functional.one_hot": lambda: F.one_hot(row),
        "Tensor.add_": lambda: index.add_(1),
    }


def of_pyg(part: dict[str, Any]) -> Tries:
    """Functions and classes of torch_geometric."""
    import torch_geometric.transforms as transforms
    from torch_geometric import nn as pyg, utils
    from torch_geometric.data import Data

    index = sar.pyg.edge_index(build(part))
    rows = index.edges.rows("v")
    data = Data(x=torch.ones(rows, 3), edge_index=index)
    batch = torch.zeros(rows).long()
    return {
        "LineGraph": lambda: transforms.LineGraph()(data),
        "TwoHop": lambda: transforms.TwoHop()(data),
        "VirtualNode": lambda: transforms.VirtualNode()(data),
        "Data.validate": lambda: data.validate(),
        "Data.is_sorted": lambda: data.is_sorted(),
        "torch_geometric.nn.SGFormer": lambda: pyg.SGFormer(3, 4, 2)(data.x, index, batch),
        "torch_geometric.nn.Polynormer": lambda: pyg.Polynormer(3, 4, 2)(data.x, index, batch),
        "torch_geometric.utils.to_undirected": lambda: utils.to_undirected(index),
        "torch_geometric.utils.k_hop_subgraph": lambda: utils.k_hop_subgraph(0, 1, index),
        "torch_geometric.utils.to_dense_adj": lambda: utils.to_dense_adj(index),
    }


def of_dgl(part: dict[str, Any]) -> Tries:
    """Functions of dgl, and methods of its graphs."""
    import dgl

    g = build(part)
    g.ndata["x"] = torch.ones(g.num_nodes(), 2)
    some = torch.arange(min(2, g.num_nodes()))
    return {
        "dgl.to_block": lambda: dgl.to_block(g),
        "dgl.sampling.sample_neighbors": lambda: dgl.sampling.sample_neighbors(g, some, 2),
        "dgl.sampling.random_walk": lambda: dgl.sampling.random_walk(g, some, length=2),
        "dgl.sampling.node2vec_random_walk": lambda: dgl.sampling.node2vec_random_walk(g, some, 1, 1, 2),
        "dgl.sampling.global_uniform_negative_sampling": lambda: dgl.sampling.global_uniform_negative_sampling(g, 3),
        "dgl.bfs_nodes_generator": lambda: dgl.bfs_nodes_generator(g, 0),
        "dgl.dfs_edges_generator": lambda: dgl.dfs_edges_generator(g, 0),
        "dgl.topological_nodes_generator": lambda: dgl.topological_nodes_generator(g),
        "graph.subgraph": lambda: g.subgraph(some),
        "dgl.node_subgraph": lambda: dgl.node_subgraph(g, some),
        "dgl.edge_subgraph": lambda: dgl.edge_subgraph(g, some),
        "dgl.in_subgraph": lambda: dgl.in_subgraph(g, some),
        "graph.has_nodes": lambda: g.has_nodes(0),
        "dgl.khop_in_subgraph": lambda: dgl.khop_in_subgraph(g, some, 1),
        "dgl.khop_out_subgraph": lambda: dgl.khop_out_subgraph(g, some, 1),
        "dgl.to_simple": lambda: dgl.to_simple(g),
        "dgl.batch": lambda: dgl.batch([g, g]),
        "dgl.unbatch": lambda: dgl.unbatch(g),
        "dgl.to_bidirected": lambda: dgl.to_bidirected(g),
        "dgl.add_reverse_edges": lambda: dgl.add_reverse_edges(g),
        "dgl.to_homogeneous": lambda: dgl.to_homogeneous(g),
        "dgl.line_graph": lambda: dgl.line_graph(g),
        "dgl.to_networkx": lambda: dgl.to_networkx(g),
        "dgl.save_graphs": lambda: dgl.save_graphs("never.dgl", [g]),
        "dgl.metis_partition": lambda: dgl.metis_partition(g, 2),
        "dgl.node_type_subgraph": lambda: dgl.node_type_subgraph(g, ["_N"]),
        "dgl.reorder_graph": lambda: dgl.reorder_graph(g),
        "dgl.compact_graphs": lambda: dgl.compact_graphs(g),
        "dgl.laplacian_lambda_max": lambda: dgl.laplacian_lambda_max(g),
        "dgl.shortest_dist": lambda: dgl.shortest_dist(g),
        "dgl.add_nodes": lambda: dgl.add_nodes(g, 1),
        "graph.adj": lambda: g.adj(),
        "graph.in_subgraph": lambda: g.in_subgraph(some),
        "graph.reverse": lambda: g.reverse(),
        "graph.sample_neighbors": lambda: g.sample_neighbors(some, 2),
        "graph.to_simple": lambda: g.to_simple(),
        "graph.edge_ids": lambda: g.edge_ids(0, 0),
    }


def said(part: dict[str, Any], which: str) -> dict[str, tuple[str, str, str]]:
    """What each try raises: the type of the error, what it says that was called, and what to do instead."""
    warnings.simplefilter("ignore")
    found: dict[str, tuple[str, str, str]] = {}
    for name, function in {"torch": of_torch, "pyg": of_pyg, "dgl": of_dgl}[which](part).items():
        try:
            found[name] = ("nothing", repr(function())[:200], "")
        except sar.WholeGraphError as error:
            found[name] = (type(error).__name__, error.name, error.instead)
            assert error.name in str(error) and error.instead in str(error)
        except Exception as error:
            found[name] = (type(error).__name__, str(error), "")
    return found


def answers(x: np.ndarray, y: np.ndarray, index: Any) -> dict[str, Any]:
    """Functions of torch and PyG that read rows of nodes by an edge index, or count: results and the gradient of ``x``.

    :param index: an edge index
    """
    from torch_geometric.utils import homophily

    row, col = index
    leaf, labels = torch.from_numpy(x.copy()).requires_grad_(), torch.from_numpy(y)
    n, width = x.shape
    edges = {
        "embedding": F.embedding(row, leaf),
        "gather": torch.gather(leaf, 0, row.view(-1, 1).expand(-1, width)),
        "gather of destinations": leaf.gather(0, col.unsqueeze(1).expand(len(col), width)),
        "gather of columns": leaf.t().gather(1, row.unsqueeze(0).expand(width, -1)).t(),
        "both ends": leaf[index].movedim(0, 1),
    }
    nodes = {
        "in-degrees": torch.bincount(col, minlength=n),
        "out-degrees": torch.bincount(row, minlength=n),
        "scattered": torch.zeros_like(leaf).scatter_add(0, col.view(-1, 1).expand(-1, width), leaf[row]),
    }
    total = sum((t.sin() * k).sum() for k, t in enumerate([*edges.values(), nodes["scattered"]], 1))
    total.backward()  # type: ignore[union-attr]
    return numpy(
        {
            "edges": edges,
            "nodes": {**nodes, "gradient": leaf.grad},
            "homophily": [homophily(index, labels, method=method) for method in ("edge", "node", "edge_insensitive")],
        }
    )


def own_answers(part: dict[str, Any], x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    return answers(x, y, sar.pyg.edge_index(build(part)))
