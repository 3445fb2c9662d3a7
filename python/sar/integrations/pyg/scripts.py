"""What scripts of PyG do beside calling layers: drawing edges, explaining predictions, walks."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.errors import WholeGraphError
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.subgraph import edges_kept_at_random
from sar.transforms import homophily as counted_homophily


def dropout_edge(
    original: Any, edge_index: Any, p: float = 0.5, force_undirected: bool = False, training: bool = True
) -> Tuple[Tensor, Tensor]:
    """The same edges stay whatever the number of workers, where the partition has original ids. Collective."""
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, p, force_undirected, training)
    if not 0 <= p <= 1:
        raise ValueError(f"Dropout probability has to be between 0 and 1 (got {p})")
    if force_undirected:
        raise WholeGraphError(
            "dropout_edge(force_undirected=True)",
            "the edges of one worker end at its own nodes, and their reverse edges are elsewhere. Leave "
            "force_undirected out, and edges stay one by one",
        )
    if not training or p == 0:
        return edge_index, torch.ones(edge_index.edges.num_edges, dtype=torch.bool)
    mask = edges_kept_at_random(edge_index.edges.relation, p)
    chosen: Tensor = edge_index[:, mask]
    return chosen, mask


@uncompiled
def homophily(original: Any, edge_index: Any, y: Tensor, batch: Optional[Tensor] = None, method: str = "edge") -> Any:
    """Counts the edges of all workers. Collective."""
    if not isinstance(edge_index, SplitEdgeIndex):
        return original(edge_index, y, batch, method)
    if batch is not None:
        raise WholeGraphError("homophily(batch=...)", "leave batch out: the nodes of all workers are one graph")
    return counted_homophily(edge_index, y, method)


BEFORE = "it needs the edges of the whole graph, which are on several workers: apply it before the graph is partitioned"
ATTENTION = (
    "its nodes attend to the nodes of all workers, and would see those of one: model = sar.prepare(model, data), once "
    "before training, has them see all"
)
POOLING = (
    "it keeps the best nodes of the whole graph, which are on several workers: pool with global_add_pool, "
    "global_mean_pool, global_max_pool or AttentionalAggregation"
)
MODELS: Dict[str, str] = {
    **dict.fromkeys(["TopKPooling", "SAGPooling", "ASAPooling", "PANPooling", "EdgePooling"], POOLING),
    **dict.fromkeys(["ClusterPooling", "GraphUNet"], POOLING),
    "AttentiveFP": BEFORE,
}
"""Layers and models that need the whole graph, with what to do."""

_EXPLAIN = (
    "explanations of predictions weigh the messages of single edges, and a graph split over workers holds none: save "
    "the model's state_dict, and explain it on one process, on the subgraph around a node "
    "(torch_geometric.utils.k_hop_subgraph)"
)
_LOADER = (
    "it would draw from this worker's edges alone. model(data.x, data.edge_index) computes all own nodes from all "
    "their neighbours, and `sar infer` does so from a checkpoint; sar.DataLoader with sar.DistNeighborSampler draws "
    "batches"
)
_WALKS = (
    "it draws random walks over the whole graph, whose edges are on several workers. Train it before the graph is "
    "partitioned, and give its embeddings as columns of nodes"
)

UTILS = ["is_undirected", "to_undirected", "coalesce", "sort_edge_index", "k_hop_subgraph", "to_dense_adj"]
UTILS += ["to_scipy_sparse_matrix", "to_networkx", "to_torch_coo_tensor", "to_torch_csr_tensor"]
UTILS += ["remove_isolated_nodes", "contains_isolated_nodes", "hetero.group_hetero_graph"]
UTILS += ["hetero.construct_bipartite_edge_index"]
UTILS += ["assortativity", "get_ppr", "bipartite_subgraph", "segregate_self_loops", "dropout_path"]
UTILS += ["dropout_adj", "unbatch_edge_index", "to_torch_csc_tensor", "to_torch_sparse_tensor"]
UTILS += ["train_test_split_edges", "add_random_edge", "to_dgl", "to_networkit", "to_cugraph", "get_self_loop_attr"]
"""Functions of torch_geometric.utils that need the edges of the whole graph."""
DRAWS = ["negative_sampling", "batched_negative_sampling", "structured_negative_sampling"]
"""Functions that ``sar`` has under the same names."""
LOADERS = ["NeighborLoader", "LinkNeighborLoader", "HGTLoader", "ShaDowKHopSampler", "ClusterData"]
LOADERS += ["GraphSAINTSampler", "NeighborSampler"]
OWN_WAYS = {
    "MeshCNNConv": "it takes the messages of a node by their position among all edges: use it on the whole graph",
    "PANConv": "it multiplies sparse matrices of the whole graph: use MixHopConv or TAGConv",
}
"""Layers that would give other results than on the whole graph, with what to do."""

WHOLE: Dict[str, str] = {
    **{f"utils.{name}": BEFORE for name in UTILS},
    "utils.homophily": "it would count the edges of this worker, since it was imported before there was a split graph: "
    "call torch_geometric.utils.homophily by this name, or sar.transforms.homophily",
    **{
        f"utils.{name}": "it would draw among the edges of this worker: "
        f"sar.{name}, which takes the same, draws among all nodes"
        for name in DRAWS
    },
    "explain.Explainer.__call__": _EXPLAIN,
    "loader.RandomNodeLoader.collate_fn": _LOADER,
    **{f"loader.{name}.__init__": _LOADER for name in LOADERS},
    **dict.fromkeys(["nn.SGFormer.forward", "nn.Polynormer.forward"], ATTENTION),
    **dict.fromkeys(["transforms.AddGPSE.__call__", "data.HeteroData.to_homogeneous"], BEFORE),
    **{f"nn.{name}.forward": why for name, why in {**MODELS, **OWN_WAYS}.items()},
    "nn.SignedGCN.create_spectral_features": BEFORE,
    "nn.SignedGCN.nll_loss": "it puts the edges of both signs into one edge index: add up the losses of "
    "model.discriminate(z, edges) for the edges of each sign, and for pairs of sar.negative_sampling",
    **dict.fromkeys(["nn.Node2Vec.__init__", "nn.MetaPath2Vec.__init__"], _WALKS),
}
"""Functions in which tensors of a split graph raise an error, and what to do instead."""


def called(path: str) -> str:
    """What users call one of these functions."""
    owner, _, name = f"torch_geometric.{path}".rpartition(".")
    return owner if name in ("forward", "collate_fn", "__call__", "__init__") else f"{owner}.{name}"
