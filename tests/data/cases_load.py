"""What sar.load gives on a worker."""

from __future__ import annotations

import copy
from typing import Any, Callable

import torch
from torch import Tensor

import sar
from tests.support.worker import numpy


def graph(path: str) -> dict[str, Any]:
    """As a graph: its columns, sums and degrees."""
    found = sar.load(path)
    columns = {f"{kind}/{name}": x for kind in found.ntypes for name, x in found.nodes[kind].data.items()}
    edges = {
        ":".join(triple): {"degrees": found.in_degrees(etype=triple), **found.edges[triple].data}
        for triple in found.canonical_etypes
    }
    told = _told(found, columns, edges, [found.local_var(), found[found.etypes[0]], copy.deepcopy(found)])
    for kind in found.ntypes:
        found.nodes[kind].data.pop("features", None)
    assert not any(name.endswith("/features") for name in found._node_columns())
    return told


def pyg(path: str) -> dict[str, Any]:
    """As data for PyG, under the names that a graph has."""
    from torch_geometric.data import Data

    found: Any = sar.load(path, pyg=True)
    one = isinstance(found, Data)
    names = {"x": "features", "y": "labels", "n_id": "orig_id"}
    columns = {
        f"{'_N' if one else kind}/{names.get(name, name)}": x
        for kind, store in ([("_N", found._store)] if one else found.node_items())
        for name, x in store.items()
        if isinstance(x, Tensor) and name not in ("edge_index", "w")
    }
    edges = {}
    for triple, store in [(("_N", "_E", "_N"), found)] if one else found.edge_items():
        edges[":".join(triple)] = {"degrees": torch.ones(store.edge_index.shape[1]), "w": store.get("w")}
    assert not {"num_classes", "total", "_known"} & set(found.to_dict())
    given = copy.copy(found)
    given.num_classes = 2
    assert given.num_classes == 2 != found.num_classes
    return _told(found, columns, edges, [copy.copy(found), copy.deepcopy(found)])


def _told(found: Any, columns: dict[str, Tensor], edges: dict[str, Any], others: list[Any]) -> dict[str, Any]:
    label = "labels" if isinstance(found, sar.GraphShardManager) else "y"
    assert all(other.num_classes == found.num_classes for other in others)
    share = torch.full((2, 2), float(sar.rank() + 1))
    return {
        "kind": type(found).__name__,
        "columns": {name: numpy(x) for name, x in columns.items()},
        "edges": {
            kind: {name: float(x.sum()) for name, x in values.items() if x is not None}
            for kind, values in edges.items()
        },
        "num_classes": found.num_classes,
        "totals": [found.total("train_mask"), found.total(label), found.total(share), found.total(0.5)],
        "gradient": found.total(torch.ones(3, requires_grad=True)),
        "unknown": _error(lambda: found.total("trian_mask")),
    }


def why_not(paths: list[str], pyg: bool) -> list[str]:
    """Why the number of classes is not known, graph after graph."""

    def one(path: str) -> str:
        return _error(lambda: (sar.load(path, pyg=True) if pyg else sar.load(path)).num_classes)

    return list(map(one, paths))


def classes(path: str) -> int:
    return sar.load(path).num_classes


def by_hand(path: str) -> list[Any]:
    """A graph of the older calls: sums work, and the number of classes says that nobody counted."""
    made = sar.construct_full_graph(sar.load_dgl_partition_data(path, sar.rank()))
    made.ndata["ones"] = torch.ones(made.num_nodes())
    return [made.total("ones"), _error(lambda: made.num_classes)]


def _error(call: Callable[[], Any]) -> str:
    try:
        return f"no error: {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error.args[0]}"
