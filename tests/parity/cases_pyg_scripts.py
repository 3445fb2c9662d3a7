"""What scripts of PyG do with models and graphs beside calling layers: compile, look by hooks, explain, draw edges."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
from torch import nn

import sar
from tests.parity.cases_pyg import graph_index
from tests.support.worker import numpy, refusal

IN, OUT = 6, 4


def _nn() -> Any:
    import torch_geometric.nn

    return torch_geometric.nn


# ---- hooks -----------------------------------------------------------------------

HOOKS = ("propagate", "message", "aggregate", "edge_update")


class Layer:
    """A layer of one's own with a function for edges, made where torch_geometric is there."""

    def __new__(cls) -> Any:
        from torch_geometric.nn import MessagePassing

        class Own(MessagePassing):
            def __init__(self) -> None:
                super().__init__(aggr="sum")
                self.lin = nn.Linear(IN, IN)

            def forward(self, x: Any, edge_index: Any) -> Any:
                weight = self.edge_updater(edge_index, x=x)
                return self.propagate(edge_index, x=self.lin(x), weight=weight)

            def edge_update(self, x_i: Any, x_j: Any) -> Any:
                return torch.sigmoid((x_i * x_j).sum(-1, keepdim=True))

            def message(self, x_j: Any, weight: Any) -> Any:
                return x_j * weight

        return Own()


def hooked(x: np.ndarray, part: dict[str, Any] | None = None, index: Any = None, changes: bool = False) -> Any:
    """A layer with every hook that ``MessagePassing`` has: what is called in which order, with which kinds of tensors,
    and the result.

    :param changes: hooks double what they get
    """
    edge_index = graph_index(part) if part is not None else torch.from_numpy(index)
    torch.manual_seed(1)
    layer, seen = Layer().double(), []

    def before(name: str) -> Callable[..., Any]:
        def hook(module: Any, given: Any) -> Any:
            columns = given[-1] if isinstance(given[-1], dict) else {}
            seen.append((f"{name} before", sorted({type(v).__name__ for v in columns.values() if torch.is_tensor(v)})))
            if changes and name == "message":
                return ({**columns, "x_j": columns["x_j"] * 2},)
            return None

        return hook

    def after(name: str) -> Callable[..., Any]:
        def hook(module: Any, given: Any, out: Any) -> Any:
            seen.append((f"{name} after", [type(out).__name__]))
            return out * 2 if changes else None

        return hook

    for name in HOOKS:
        getattr(layer, f"register_{name}_forward_pre_hook")(before(name))
        getattr(layer, f"register_{name}_forward_hook")(after(name))
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    out = layer(leaf, edge_index)
    out.square().sum().backward()
    return {"seen": seen, "out": numpy(out), "x": numpy(leaf.grad)}


# ---- what works, and what is refused -----------------------------------------------


def answers(part: dict[str, Any]) -> dict[str, Any]:
    """Functions that look at the edges."""
    index = graph_index(part)
    import torch_geometric.transforms as transforms
    from torch_geometric import utils
    from torch_geometric.data import Data

    rows = index.edges.rows("v")
    data = Data(x=torch.ones(rows, 2), edge_index=index)
    looped = transforms.AddSelfLoops()(Data(x=data.x, edge_index=index)).edge_index
    remaining, _ = utils.add_remaining_self_loops(index)
    bare, _ = utils.remove_self_loops(index)
    sar.seed(4) if hasattr(sar, "seed") else torch.manual_seed(4)
    dropped, mask = utils.dropout_edge(index, p=0.4, training=True)
    same, everything = utils.dropout_edge(index, p=0.4, training=False)
    return {
        "loops": [utils.contains_self_loops(i) for i in (index, looped, bare)] + [data.has_self_loops()],
        "edges": [i.shape[1] for i in (index, looped, remaining, bare)],
        "degree": numpy(utils.degree(index[1])),
        "dropped": [dropped.shape[1], int(mask.sum()), len(mask)],
        "kept": numpy(mask),
        "same": same is index and bool(everything.all()) and len(everything) == index.shape[1],
        "sums": numpy(utils.scatter(torch.ones(rows, 1)[dropped[0]], dropped[1])),
        "ends": numpy(dropped.numbers()[1]),
        "data": [data.num_nodes, data.num_edges, data.is_directed.__name__],
    }


def refused(part: dict[str, Any]) -> dict[str, str]:
    """What each says."""
    index = graph_index(part)
    import torch_geometric.transforms as transforms
    from torch_geometric import loader, nn as pyg, utils
    from torch_geometric.data import Data
    from torch_geometric.explain import Explainer, GNNExplainer

    rows, n = index.edges.rows("v"), index.shape[1]
    x = torch.ones(rows, IN)
    data = Data(x=x, edge_index=index)
    model = pyg.GCN(IN, 8, 2, OUT)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = Explainer(model, GNNExplainer(epochs=1), "model", config, "attributes", "object")

    way = "paper", "cites", "paper"
    tried: dict[str, Callable[[], Any]] = {
        "is_undirected": lambda: utils.is_undirected(index),
        "data.is_undirected": data.is_undirected,
        "to_undirected": lambda: utils.to_undirected(index),
        "ToUndirected": lambda: transforms.ToUndirected()(data),
        "coalesce": lambda: utils.coalesce(index),
        "data.coalesce": data.coalesce,
        "sort_edge_index": lambda: utils.sort_edge_index(index),
        "contains_isolated_nodes": lambda: utils.contains_isolated_nodes(index),
        "has_isolated_nodes": data.has_isolated_nodes,
        "remove_isolated_nodes": lambda: utils.remove_isolated_nodes(index),
        "subgraph, relabelled": lambda: utils.subgraph(torch.ones(rows) > 0, index, relabel_nodes=True),
        "dropout_node, relabelled": lambda: utils.dropout_node(index, relabel_nodes=True),
        "NeighborLoader": lambda: loader.NeighborLoader(data, [-1], batch_size=4),
        "ClusterData": lambda: loader.ClusterData(data, 2),
        "RandomNodeLoader": lambda: next(iter(loader.RandomNodeLoader(data, 2))),
        "TopKPooling": lambda: pyg.TopKPooling(IN)(x, index),
        "SAGPooling": lambda: pyg.SAGPooling(IN)(x, index),
        "GraphUNet": lambda: pyg.GraphUNet(IN, 4, OUT, 2)(x, index),
        "SGFormer": lambda: pyg.SGFormer(IN, 4, OUT)(x, index, torch.zeros(rows).long()),
        "k_hop_subgraph": lambda: utils.k_hop_subgraph(0, 2, index),
        "negative_sampling": lambda: utils.negative_sampling(index),
        "batched_negative_sampling": lambda: utils.batched_negative_sampling(index, torch.zeros(rows).long()),
        "structured_negative_sampling": lambda: utils.structured_negative_sampling(index),
        "add_random_edge": lambda: utils.add_random_edge(index, 0.5),
        "to_dgl": lambda: utils.to_dgl(data),
        "homophily": lambda: utils.homophily(index, torch.zeros(rows), torch.zeros(rows).long()),
        "to_dense_adj": lambda: utils.to_dense_adj(index),
        "to_networkx": lambda: utils.to_networkx(data),
        "ToSparseTensor": lambda: transforms.ToSparseTensor()(data),
        "GDC": lambda: transforms.GDC()(data),
        "RandomLinkSplit": lambda: transforms.RandomLinkSplit()(data),
        "LargestConnectedComponents": lambda: transforms.LargestConnectedComponents()(data),
        "dropout_edge": lambda: utils.dropout_edge(index, force_undirected=True),
        "MetaPath2Vec": lambda: pyg.MetaPath2Vec({way: index}, 4, [way], 3, 2),
        "Node2Vec": lambda: _with_walks(lambda: pyg.Node2Vec(index, 4, 3, 2)),
        "SignedGCN": lambda: pyg.SignedGCN(IN, 4, 2).loss(x, index, index),
        "Explainer": lambda: explainer(x, index),
        "change in place": lambda: index.add_(1),
        "edges of another graph": lambda: pyg.GCNConv(IN, OUT)(x, graph_index(part), torch.ones(n + 1)),
        "rows of other nodes": lambda: pyg.GATConv(IN, OUT)(torch.ones(rows + 1, IN), index),
        "sum over the wrong size": lambda: utils.scatter(x[index[0]], index[1], dim_size=rows + 1),
        "edges picked in another order": lambda: index[:, torch.arange(n).flip(0)],
    }
    return {name: refusal(function) for name, function in tried.items()}


def _with_walks(call: Callable[[], Any]) -> Any:
    """As where the library is installed that draws walks."""
    from unittest import mock

    with mock.patch("torch_geometric.nn.models.node2vec.WITH_PYG_LIB", True), mock.patch("torch.ops.pyg", mock.Mock()):
        return call()


def kernels(part: dict[str, Any]) -> dict[str, str]:
    """What says each function that would give numbers of halo rows to a kernel: class and text of the error."""
    import pickle

    import scipy.sparse
    import torch_geometric.transforms as transforms
    from torch_geometric import EdgeIndex, utils
    from torch_geometric.data import Data

    index = graph_index(part)
    source, target = index
    rows, edges = index.edges.rows("v"), index.shape[1]
    size, x, ones = (rows, rows), torch.ones(rows, IN), torch.ones(edges)
    data = Data(x=x, edge_index=index)
    tried: dict[str, Callable[[], Any]] = {
        "EdgeIndex @ x": lambda: EdgeIndex(index, sparse_size=size, sort_order="row") @ x,
        "EdgeIndex.matmul": lambda: EdgeIndex(index, sparse_size=size, sort_order="col").matmul(x, transpose=True),
        "EdgeIndex.to_dense": lambda: EdgeIndex(index, sparse_size=size).to_dense(),
        "EdgeIndex.get_csr": lambda: EdgeIndex(index, sparse_size=size, sort_order="row").get_csr(),
        "EdgeIndex of rows": lambda: EdgeIndex(torch.stack([source, source]), sparse_size=size) @ x,
        "SIGN": lambda: transforms.SIGN(2)(data),
        "sparse_coo_tensor": lambda: torch.sparse_coo_tensor(index, ones, size),
        "sparse_coo_tensor, unchecked": lambda: torch.sparse_coo_tensor(index, ones, size, check_invariants=False) @ x,
        "sparse_csr_tensor": lambda: torch.sparse_csr_tensor(target, source, ones, size, check_invariants=False) @ x,
        "sparse_csc_tensor": lambda: torch.sparse_csc_tensor(target, source, ones, size, check_invariants=False),
        "to_sparse": index.to_sparse,
        "to_torch_csr_tensor": lambda: utils.to_torch_csr_tensor(index, size=size),
        "to_torch_coo_tensor": lambda: utils.to_torch_coo_tensor(index, size=size),
        "ToSparseTensor": lambda: transforms.ToSparseTensor()(data),
        "to_scipy_sparse_matrix": lambda: utils.to_scipy_sparse_matrix(index),
        "scipy.sparse": lambda: scipy.sparse.coo_matrix((ones, (source, target)), size),
        "numpy": lambda: np.asarray(source),
        "Tensor.numpy": index.numpy,
        "tolist": source.tolist,
        "aten.index_select": lambda: torch.ops.aten.index_select(x, 0, source),
        "aten.sort": lambda: torch.ops.aten.sort(source),
        "aten._coalesced": lambda: torch.ops.aten._sparse_coo_tensor_unsafe(index, ones, size),
        "sort": lambda: source.sort(),
        "gather": lambda: torch.gather(x, 0, source.view(-1, 1)),
        "take": lambda: x.take(source),
        "smaller": lambda: source < target,
        "equal to a number": lambda: source == 0,
        "pickle": lambda: pickle.dumps(source),
        "float": source.float,
        "loop over a row": lambda: list(source),
    }
    said = {name: refusal(function) for name, function in tried.items()}
    assert torch.equal(source == target, index.numbers()[0] == index.numbers()[1])
    return said
