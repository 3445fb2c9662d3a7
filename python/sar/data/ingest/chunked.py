"""DGL's chunked graphs: ``metadata.json``, and files of edges and of features in pieces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sar.data.directory import open_regular
from sar.errors import FormatError

from .arrays import joined
from .engine import Engine
from .schema import Edges, Graph, Nodes, add_beside
from .tables import FileTable, Table, array_table, find_files, pair_table

METADATA = "metadata.json"


def from_chunks(path: Path, engine: Engine) -> Graph:
    """A graph out of DGL's chunked format.

    :param path: its metadata.json
    :raises sar.FormatError: the description is not as it should be
    """
    try:
        with open_regular(path) as file:
            content = json.load(file)
        return _read(content, path.parent, engine)
    except FormatError:
        raise
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise FormatError(
            f"{path}: expected the description of a chunked graph of DGL ({type(error).__name__}: {error})", str(path)
        ) from None


def _read(content: Mapping[str, Any], base: Path, engine: Engine) -> Graph:
    graph = Graph(str(content.get("graph_name", "")), {}, [])
    for name, chunks in zip(content["node_type"], content["num_nodes_per_chunk"]):
        nodes = graph.nodes[name] = Nodes(name, count=sum(chunks))
        for feature, entry in content.get("node_data", {}).get(name, {}).items():
            if entry["format"]["name"] == "numpy":
                nodes.arrays[feature] = joined(find_files(list(entry["data"]), base))
            else:
                add_beside(nodes, feature, _table(entry, base, engine))
    for title in content["edge_type"]:
        source, relation, target = title.split(":")
        entry = content["edges"][title]
        if entry["format"]["name"] == "numpy":
            table = pair_table(engine, joined(find_files(list(entry["data"]), base)))
        else:
            table = _table(entry, base, engine)
        ends = list(table.columns)
        edges = Edges((source, relation, target), table, ends[0], ends[1])
        for feature, data in content.get("edge_data", {}).get(title, {}).items():
            add_beside(edges, feature, _table(data, base, engine))
        graph.edges.append(edges)
    return graph


def _table(entry: Mapping[str, Any], base: Path, engine: Engine) -> Table:
    files = find_files(list(entry["data"]), base)
    if entry["format"]["name"] == "numpy":
        rows = joined(files)
        return array_table(engine, rows.name, {"values": rows})
    return FileTable(engine, files, header=False, delimiter=entry["format"].get("delimiter"))
