"""PyG's data objects of a worker's part of a graph."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Union

from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage

from sar.autograd.dtypes import FLOATS
from sar.autograd.expression import load as load_edges
from sar.data.partition_book import CanonicalEtype
from sar.graph.construct import PRIVATE, load_graph
from sar.graph.edge_index.index import SplitEdgeIndex, edge_index as of_graph
from sar.graph.edge_tensor.tensor import EdgeTensor
from sar.graph.manager import GraphShardManager
from sar.graph.totals import Totals

from . import over_nodes

NODE_NAMES = {"feat": "x", "features": "x", "label": "y", "labels": "y", "orig_id": "n_id"}
"""What other libraries call columns of nodes, and what PyG does."""


def edge_index(graph: Any) -> SplitEdgeIndex:
    """See :func:`sar.pyg.edge_index`."""
    over_nodes.begin()
    return of_graph(graph)


class _OverWorkers(Totals):
    """What the data object of a part has beside what PyG's has. Its stores show nothing of it."""

    stores: List[BaseStorage]
    node_stores: List[BaseStorage]
    _known: Mapping[str, int] = {}

    def _classes(self) -> Mapping[str, int]:
        given = self.stores[0].get("num_classes")  # as scripts set it
        return self._known if given is None else {"": int(given)}

    def _node_columns(self) -> Dict[str, Tensor]:
        return {
            name if store._key is None else f"{store._key}/{name}": value
            for store in self.node_stores
            for name, value in store.items()
            if isinstance(value, Tensor) and not isinstance(value, (SplitEdgeIndex, EdgeTensor))
        }


class SplitData(_OverWorkers, Data):
    """A ``Data`` of torch_geometric for a worker's part of a graph."""

    x: Tensor
    y: Tensor
    n_id: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    edge_index: SplitEdgeIndex


class SplitHeteroData(_OverWorkers, HeteroData):
    """A ``HeteroData`` of torch_geometric for a worker's part of a graph."""

    x_dict: Dict[str, Tensor]
    y_dict: Dict[str, Tensor]
    edge_index_dict: Dict[CanonicalEtype, SplitEdgeIndex]


def load(path: Union[str, os.PathLike[str]]) -> Union[SplitData, SplitHeteroData]:
    """See :func:`sar.load`."""
    graph, columns = load_graph(path)
    data: Union[SplitData, SplitHeteroData]
    if graph.is_homogeneous:
        data = SplitData(**_nodes(graph, *columns.popitem()), **_edges(graph))
    else:
        data = SplitHeteroData()
        for kind, own in columns.items():
            data[kind].update(_nodes(graph, kind, own))
        for triple in graph.canonical_etypes:
            data[triple].update(_edges(graph[triple]))
    data.__dict__["_known"] = graph._state.classes  # an attribute would be a column
    return data


def _nodes(graph: GraphShardManager, kind: str, own: Mapping[str, Tensor]) -> Dict[str, Any]:
    """Columns of the own nodes of a type under the names that PyG has for them."""
    columns = {name: column for name, column in own.items() if name not in NODE_NAMES}
    for name in [name for name in own if name in NODE_NAMES]:
        taken = NODE_NAMES[name] in columns
        columns[name if taken else NODE_NAMES[name]] = own[name]
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
            columns[name] = index.edges.tensor(load_edges("e", column)) if column.dtype in FLOATS else column
    return columns
