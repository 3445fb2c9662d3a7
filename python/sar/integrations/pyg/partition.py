"""Cuts a graph of PyG."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from sar.graph.edge_index.index import SplitEdgeIndex
from sar.partitioning.arrays import partition_arrays
from sar.partitioning.options import PartitioningError

ONE_TYPE = ("_N", "_E", "_N")
"""What a partition calls the types of a graph that has one of each."""


def partition(data: Any, parts: int, out: Any, name: str, method: Optional[str], seed: int) -> str:
    """See :func:`sar.pyg.partition`."""
    try:
        return partition_arrays(_arrays(data), parts, os.fspath(out), name, method, seed)
    except PartitioningError as error:
        raise RuntimeError(str(error)) from error


def _arrays(data: Union[Data, HeteroData]) -> Dict[str, np.ndarray]:
    """A whole graph as ``sar partition`` takes it: ``{"type/name": [nodes, ...]}`` and, by ``source:relation:target``,
    ``edge_index`` and columns of edges.

    :raises TypeError: it is no Data and no HeteroData
    :raises ValueError: a relation has no edge index
    """
    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(f"expected a Data or HeteroData of torch_geometric, and got a {type(data).__name__}")
    stores: List[Tuple[Optional[str], Any, Any]] = []
    if isinstance(data, Data):
        stores = [(ONE_TYPE[0], ONE_TYPE, data.stores[0])]
    else:
        stores = [(kind, None, data[kind]) for kind in data.node_types]
        stores += [(None, triple, data[triple]) for triple in data.edge_types]
        linked = {end for triple in data.edge_types for end in (triple[0], triple[2])}
        alone = [kind for kind in data.node_types if kind not in linked]
        if alone:
            raise ValueError(f"no edge begins or ends at nodes of type {', '.join(alone)}: remove them from the graph")
    arrays: Dict[str, np.ndarray] = {}
    for kind, triple, store in stores:
        if kind is not None:
            arrays[f"{kind}/num_nodes"] = np.array(int(store.num_nodes))
            arrays.update({f"{kind}/{key}": _array(store[key]) for key in store.node_attrs() if _is_column(store[key])})
        if triple is not None:
            prefix = ":".join(triple)
            if store.get("edge_index") is None:
                raise ValueError(f"edges {prefix} have no edge_index: partition before ToSparseTensor and the like")
            names = [key for key in store.edge_attrs() if _is_column(store[key])]
            arrays.update({f"{prefix}/{key}": _array(store[key]) for key in names})
    return arrays


def _is_column(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and value.ndim > 0


def _array(value: Any) -> np.ndarray:
    if isinstance(value, SplitEdgeIndex):
        raise ValueError("this graph is split over workers already: give the whole graph, as the data set has it")
    return np.asarray(value.detach().cpu()) if isinstance(value, Tensor) else value
