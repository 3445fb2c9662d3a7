"""Graphs that come as arrays: ``.npz`` files, directories of ``.npy`` files, and graphs of DGL and PyG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from .arrays import Rows, memory_rows, npy_rows
from .engine import Engine
from .schema import NODE, ONE, Edges, Graph, Nodes, Triple, triple_of
from .tables import array_table, pair_table

_NAMES = {"x": "features", "y": "labels", "edge_weight": "weight"}
_EDGES, _COUNT = "edge_index", "num_nodes"


def npy_directory(path: Path) -> dict[str, Rows]:
    """The ``.npy`` files of a directory by name; those of directories in it as ``directory/name``."""
    return {p.relative_to(path).with_suffix("").as_posix(): npy_rows(p) for p in sorted(path.rglob("*.npy"))}


def from_arrays(arrays: Mapping[str, Rows], name: str, engine: Engine) -> Graph:
    """A graph out of ``edge_index`` and arrays of features, as ``.npz`` files have them. With several types,
    ``source:relation:destination/edge_index`` and ``type/x``. Types are in the order in which arrays first name them,
    before a slash or as an end of edges.

    The number of nodes is that of the rows of ``x``, ``y`` or a mask; else ``num_nodes``; else the largest id + 1.

    :raises ValueError: there are no edges, or an array belongs to nothing
    """
    if _EDGES in arrays:
        # what has a row for each edge, and not for each node, is of the edges
        edges, nodes = max(arrays[_EDGES].shape), _count(arrays)
        of_edges = {key for key, a in arrays.items() if key == _EDGES or (len(a) == edges and edges != nodes)}
        arrays = {f"{':'.join(ONE) if key in of_edges else NODE}/{key}": a for key, a in arrays.items()}
    owners: dict[str, dict[str, Rows]] = {}
    for key, rows in arrays.items():
        owner, _, own = key.partition("/")
        owners.setdefault(owner, {})[own] = rows
    expected = f"{name}: expected edges under source:relation:destination/{_EDGES}, found"
    found = [owner for owner, own in owners.items() if _EDGES in own]
    triples = {owner: triple_of(owner, f"{expected} {owner}/{_EDGES}") for owner in found}
    if not triples:
        raise ValueError(
            f"{name}: expected an array {_EDGES!r}, or one for each type of edge, found {', '.join(arrays)}"
        )
    ends = {end for triple in triples.values() for end in triple[::2]}
    types = [end for end in dict.fromkeys(end for owner in owners for end in owner.split(":")[::2]) if end in ends]
    unused = sorted(key for key in arrays if "/" not in key or key.partition("/")[0] not in (*triples, *types))
    if unused:
        raise ValueError(f"{name}: {unused[0]!r} belongs to no type of node or edge")
    graph = Graph("", {}, [])
    for owner, triple in triples.items():
        graph.edges.append(edges_of(triple, owners[owner].pop(_EDGES), owners[owner], engine))
    for one in types:
        features = owners.get(one, {})
        count = _count(features)
        if count is None:
            count = _largest(one, graph.edges, engine) + 1
        features.pop(_COUNT, None)
        graph.nodes[one] = nodes_of(one, count, features)
    return graph


def _count(arrays: Mapping[str, Rows]) -> Optional[int]:
    """The number of nodes that arrays of one type tell."""
    for key, rows in arrays.items():
        if key in ("x", "y") or key.endswith("mask"):
            return len(rows)
    return int(arrays[_COUNT].whole().reshape(-1)[0]) if _COUNT in arrays else None


def _largest(node_type: str, edges: list[Edges], engine: Engine) -> int:
    found = [-1]
    for one in edges:
        ends = [one.source] * (one.type[0] == node_type) + [one.target] * (one.type[2] == node_type)
        found += [engine.row(f"SELECT coalesce(max({end}), -1) FROM {one.table.sql()}")[0] for end in ends]
    return int(max(found))


def nodes_of(name: str, count: int, arrays: Mapping[str, Rows]) -> Nodes:
    """Nodes with features."""
    return Nodes(name, count=count, arrays={_NAMES.get(key, key): rows for key, rows in arrays.items()})


def edges_of(triple: Triple, pairs: Union[Rows, Sequence[Rows]], arrays: Mapping[str, Rows], engine: Engine) -> Edges:
    """Edges with features.

    :param pairs: ``[2, edges]`` or ``[edges, 2]``; or sources and targets
    :raises ValueError: a feature has more than two dimensions, or not a row for each edge
    """
    for rows in arrays.values():
        if len(rows.shape) > 2:
            raise ValueError(f"{rows.name}: features of edges have one or two dimensions, not {len(rows.shape)}")
    columns = {f"feature {key}": rows for key, rows in arrays.items()}
    if isinstance(pairs, Rows):
        table = pair_table(engine, pairs, columns)
    else:
        table = array_table(engine, f"edges[{triple}]", {"source": pairs[0], "target": pairs[1], **columns})
    features = {_NAMES.get(key, key): f"feature {key}" for key in arrays}
    return Edges(triple, table, "source", "target", columns=features)


def from_object(source: Any, engine: Engine) -> Graph:
    """A graph of DGL, or a ``Data`` or ``HeteroData`` of PyG.

    :raises TypeError: it is none
    """
    library = type(source).__module__.partition(".")[0]
    if library == "dgl" and hasattr(source, "canonical_etypes"):
        return _from_dgl(source, engine)
    if library == "torch_geometric" and hasattr(source, "edge_types"):
        return _from_heterodata(source, engine)
    if library == "torch_geometric" and hasattr(source, "is_edge_attr"):
        return _from_data(source, engine)
    raise TypeError(
        f"cannot make a graph of {type(source).__name__}: expected a path, the content of a schema, a DGL graph, or a "
        "Data or HeteroData of PyG"
    )


def _from_dgl(source: Any, engine: Engine) -> Graph:
    graph = Graph("", {}, [])
    for one in source.ntypes:
        graph.nodes[one] = nodes_of(one, source.num_nodes(one), _tensors(source.nodes[one].data, f"nodes[{one!r}]"))
    for triple in source.canonical_etypes:
        ends = zip(("sources", "targets"), source.edges(etype=triple))
        pair = [memory_rows(f"the {which} of {triple}", end) for which, end in ends]
        graph.edges.append(edges_of(triple, pair, _tensors(source.edges[triple].data, f"edges[{triple}]"), engine))
    return graph


def _from_data(source: Any, engine: Engine) -> Graph:
    given = dict(source.stores[0].items())
    of_nodes = {key: value for key, value in given.items() if source.is_node_attr(key)}
    of_edges = {key: value for key, value in given.items() if key == _EDGES or source.is_edge_attr(key)}
    nodes = nodes_of(NODE, int(source.num_nodes), _tensors(of_nodes, "data"))
    return Graph("", {NODE: nodes}, [_from_store(ONE, of_edges, "data", engine)])


def _from_heterodata(source: Any, engine: Engine) -> Graph:
    graph = Graph("", {}, [])
    for one in source.node_types:
        arrays = _tensors(dict(source[one].items()), f"data[{one!r}]")
        graph.nodes[one] = nodes_of(one, int(source[one].num_nodes), arrays)
    for triple in source.edge_types:
        graph.edges.append(_from_store(triple, dict(source[triple].items()), f"data[{triple}]", engine))
    return graph


def _from_store(triple: Triple, given: dict[str, Any], where: str, engine: Engine) -> Edges:
    """Edges out of the attributes of a PyG graph."""
    pairs = given.pop(_EDGES, None)
    if pairs is None:
        raise ValueError(f"the PyG graph has no edge_index: {where}.edge_index is None")
    return edges_of(triple, memory_rows(f"{where}.edge_index", pairs), _tensors(given, where), engine)


def _tensors(given: Mapping[str, Any], where: str) -> dict[str, Rows]:
    """The tensors and arrays among the attributes of a graph."""
    return {
        key: memory_rows(f"{where}.{key}", value)
        for key, value in given.items()
        if (hasattr(value, "detach") or isinstance(value, np.ndarray)) and value.ndim > 0
    }
