"""DGL's chunked graphs: ``metadata.json``, and files of edges and of features in pieces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sar.data.directory import open_regular
from sar.errors import FormatError

from .arrays import Rows, joined
from .engine import Engine
from .schema import Edges, Graph, Nodes
from .tables import ArrayTable, FileTable, SideBySide, Table, find_files, pair_table

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
        nodes = Nodes(name, count=sum(chunks))
        for feature, entry in content.get("node_data", {}).get(name, {}).items():
            if entry["format"]["name"] == "numpy":
                nodes.arrays[feature] = _arrays(entry, base)
                continue
            beside = _files(entry, base, engine, f"{feature}.")
            nodes.table = beside if nodes.table is None else SideBySide(engine, nodes.table, beside)
            _take(nodes.matrices, nodes.columns, feature, list(beside.columns))
        graph.nodes[name] = nodes
    for title in content["edge_type"]:
        source, relation, target = title.split(":")
        entry = content["edges"][title]
        if entry["format"]["name"] == "numpy":
            pairs = _arrays(entry, base)
            table: Table = pair_table(engine, pairs.name, pairs)
        else:
            table = _files(entry, base, engine, "")
        ends = list(table.columns)[:2]
        edges = Edges((source, relation, target), table, ends[0], ends[1])
        for feature, data in content.get("edge_data", {}).get(title, {}).items():
            if data["format"]["name"] == "numpy":
                rows = _arrays(data, base)
                more: Table = ArrayTable(engine, rows.name, {f"{feature}.": rows})
            else:
                more = _files(data, base, engine, f"{feature}.")
            edges.table = SideBySide(engine, edges.table, more)
            _take(edges.matrices, edges.columns, feature, list(more.columns))
        graph.edges.append(edges)
    return graph


def _arrays(entry: Mapping[str, Any], base: Path) -> Rows:
    return joined(find_files(list(entry["data"]), base))


def _files(entry: Mapping[str, Any], base: Path, engine: Engine, prefix: str) -> FileTable:
    files = find_files(list(entry["data"]), base)
    return FileTable(engine, files, header=False, delimiter=entry["format"].get("delimiter"), prefix=prefix)


def _take(matrices: dict[str, list[str]], columns: dict[str, str], feature: str, found: list[str]) -> None:
    if len(found) == 1:
        columns[feature] = found[0]
    else:
        matrices[feature] = found
