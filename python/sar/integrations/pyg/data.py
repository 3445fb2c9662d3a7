"""PyG's data objects of a worker's part of a graph."""

from __future__ import annotations

from typing import Any, Dict

import torch
from torch import Tensor
from torch_geometric.data import Data

from sar._engine import session as _session
from sar.autograd.expression import load as load_edges
from sar.autograd.message import FLOATS
from sar.data.loading import load_dgl_partition_data
from sar.graph.construct import construct_full_graph
from sar.graph.edge_index.index import SplitEdgeIndex, edge_index as of_graph
from sar.graph.edge_index.lifted import LiftedTensor

from . import patches

NODE_NAMES = {"feat": "x", "features": "x", "label": "y", "labels": "y", "orig_id": "n_id"}
"""What other libraries call columns of nodes, and what PyG does."""
PRIVATE = frozenset(["_ID", "_TYPE", "inner_node", "inner_edge", "part_id", "reltype"])


def edge_index(graph: Any) -> SplitEdgeIndex:
    """See :func:`sar.pyg.edge_index`."""
    index = of_graph(graph)
    if _session.current().world > 1:
        patches.split.add(index.edges)
    return index


def load(path: Any) -> Data:
    """See :func:`sar.pyg.load`."""
    partition = load_dgl_partition_data(path, _session.current().rank)
    features = dict(partition.node_features)
    graph = construct_full_graph(partition)
    if not graph.is_homogeneous:
        raise NotImplementedError(
            f"{path} has several node types or relations: load it with sar.construct_full_graph, and take "
            "sar.pyg.edge_index(graph[relation]) of each relation"
        )
    columns: Dict[str, Tensor] = {}
    for name, column in features.items():
        bare = name.rpartition("/")[2]
        if bare not in PRIVATE:
            columns[NODE_NAMES.get(bare, bare) if NODE_NAMES.get(bare) not in columns else bare] = column
    nodes = graph._state.nodes[graph.ntypes[0]]
    columns.setdefault("n_id", nodes.rows(dst=True) + nodes.first)
    index = edge_index(graph)
    for name in list(graph.edata):
        if name not in PRIVATE and name != "orig_id":
            column = graph.edata[name]
            columns[name] = LiftedTensor(index.edges, load_edges("e", column)) if column.dtype in FLOATS else column
    data = Data(edge_index=index, num_nodes=nodes.num_dst, **columns)
    for name, column in columns.items():
        if name.endswith("_mask") and column.dtype == torch.uint8:  # as DGL's files hold bools
            data[name] = column.bool()
    return data
