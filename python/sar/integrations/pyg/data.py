"""PyG's data objects of a worker's part of a graph."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Union

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from sar._engine import session as _session
from sar.autograd.expression import load as load_edges
from sar.autograd.message import FLOATS
from sar.data.loading import load_dgl_partition_data
from sar.graph.construct import construct_full_graph
from sar.graph.edge_index.index import SplitEdgeIndex, edge_index as of_graph
from sar.graph.edge_index.lifted import LiftedTensor

from . import over_nodes

NODE_NAMES = {"feat": "x", "features": "x", "label": "y", "labels": "y", "orig_id": "n_id"}
"""What other libraries call columns of nodes, and what PyG does."""
PRIVATE = frozenset(["_ID", "_TYPE", "inner_node", "inner_edge", "part_id", "reltype"])


def edge_index(graph: Any) -> SplitEdgeIndex:
    """See :func:`sar.pyg.edge_index`."""
    over_nodes.begin()
    return of_graph(graph)


def load(path: Any) -> Union[Data, HeteroData]:
    """See :func:`sar.pyg.load`."""
    partition = load_dgl_partition_data(path, _session.current().rank)
    features = dict(partition.node_features)
    graph = construct_full_graph(partition)
    if graph.is_homogeneous:
        return Data(**_nodes(graph, graph.ntypes[0], features), **_edges(graph))
    data = HeteroData()
    for kind in graph.ntypes:
        data[kind].update(_nodes(graph, kind, features))
    for triple in graph.canonical_etypes:
        data[triple].update(_edges(graph[triple]))
    return data


def _nodes(graph: Any, kind: str, features: Mapping[str, Tensor]) -> Dict[str, Any]:
    """Columns of the own nodes of a type under the names that PyG has for them."""
    own = {
        name.rpartition("/")[2]: column for name, column in features.items() if name.rpartition("/")[0] in (kind, "")
    }
    own = {name: column for name, column in own.items() if name not in PRIVATE}
    columns = {name: column for name, column in own.items() if name not in NODE_NAMES}
    for name in own.keys() - columns.keys():
        taken = NODE_NAMES[name] in columns
        columns[name if taken else NODE_NAMES[name]] = own[name]
    for name, column in columns.items():
        if name.endswith("_mask") and column.dtype == torch.uint8:  # files hold bools as such
            columns[name] = column.bool()
    rows = graph._state.nodes[kind]
    columns.setdefault("n_id", rows.rows(dst=True) + rows.first)
    return {**columns, "num_nodes": rows.num_dst}


def _edges(graph: Any) -> Dict[str, Any]:
    """The edge index of a relation, and columns of its edges."""
    index = edge_index(graph)
    columns: Dict[str, Any] = {"edge_index": index}
    for name in list(graph.edata):
        if name not in PRIVATE and name != "orig_id":
            column = graph.edata[name]
            columns[name] = LiftedTensor(index.edges, load_edges("e", column)) if column.dtype in FLOATS else column
    return columns
