"""Functions that need the edges of the whole graph, and say so."""

from __future__ import annotations

__all__ = ["WHOLE"]

WHOLE = ["is_undirected", "to_undirected", "coalesce", "sort_edge_index", "k_hop_subgraph", "to_dense_adj"]
WHOLE += ["negative_sampling", "to_scipy_sparse_matrix", "to_networkx", "to_torch_coo_tensor", "to_torch_csr_tensor"]
WHOLE += ["remove_isolated_nodes", "contains_isolated_nodes", "hetero.group_hetero_graph"]
WHOLE += ["hetero.construct_bipartite_edge_index", "structured_negative_sampling", "batched_negative_sampling"]
WHOLE += ["assortativity", "get_ppr", "bipartite_subgraph", "segregate_self_loops", "dropout_path"]
WHOLE += [
    "dropout_adj",
    "unbatch_edge_index",
    "to_torch_csc_tensor",
    "to_torch_sparse_tensor",
    "train_test_split_edges",
]
WHOLE += ["add_random_edge", "to_dgl", "to_networkit", "to_cugraph", "get_self_loop_attr"]
"""Functions of torch_geometric.utils in which an edge index of a split graph raises."""
