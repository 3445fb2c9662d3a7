"""Tables of random graphs, and what the directory of a graph has to hold, by numpy alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sar.data.graph_directory import EdgeType, GraphDirectory, verify

ONE = "_N:_E:_N"


def one_type(files: Any, nodes: dict[str, Any] | None = None, **edges: Any) -> dict[str, Any]:
    """The schema of a graph of one type."""
    return {"nodes": {"_N": nodes or {}}, "edges": {ONE: {"files": files, **edges}}}


def write_table(path: Path, **columns: Any) -> Path:
    """A table in the format that the name tells."""
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=max(1, table.num_rows // 3))
    elif path.suffixes[-1] == ".gz":
        with pa.CompressedOutputStream(path, "gzip") as stream:
            _write_csv(table, stream, path.suffixes[-2])
    else:
        _write_csv(table, str(path), path.suffix)
    return path


def _write_csv(table: Any, target: Any, suffix: str) -> None:
    options = pa.csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ",", quoting_style="needed")
    pa.csv.write_csv(table, target, options)


def expected_edges(
    source: np.ndarray,
    target: np.ndarray,
    nodes: int,
    *,
    symmetrize: bool = False,
    deduplicate: bool = False,
    self_loops: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources, destinations, and for each edge the number of the edge of the table that it comes from (-1: none)."""
    number = np.arange(len(source))
    origin = 2 * number
    if symmetrize:
        other = source != target
        source, target = np.append(source, target[other]), np.append(target, source[other])
        number, origin = np.append(number, number[other]), np.append(origin, origin[other] + 1)
    if self_loops:
        alone = np.setdiff1d(np.arange(nodes), source[source == target])
        source, target = np.append(source, alone), np.append(target, alone)
        number, origin = np.append(number, np.full(len(alone), -1)), np.append(origin, np.full(len(alone), -1))
    order = np.lexsort((origin, source, target))
    source, target, number = source[order], target[order], number[order]
    if deduplicate and len(source):
        first = np.ones(len(source), bool)
        first[1:] = (np.diff(source) != 0) | (np.diff(target) != 0)
        source, target, number = source[first], target[first], number[first]
    return source, target, number


def edges_of(graph: GraphDirectory, edge_type: EdgeType | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Sources and destinations of an edge type of a directory."""
    one = edge_type or graph.edge_types[0]
    indptr = graph.map(one.indptr)
    return np.asarray(graph.map(one.source)), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def ids_of(graph: GraphDirectory, node_type: str = "_N") -> list[Any]:
    """The users' ids, in the order of the nodes."""
    ids = graph.node_types[node_type].ids
    if ids is None:
        return list(range(graph.node_types[node_type].count))
    return pa.parquet.read_table(graph.path / ids.file).column("id").to_pylist()


def check_files(graph: GraphDirectory) -> None:
    """Each file has the checksums of its bytes, and no file is there that graph.json does not name."""
    found = verify(graph.path)
    assert all(file["checksums"] and not file["damage"] for file in found), found
    there = {str(p) for p in graph.path.rglob("*") if p.is_file()}
    assert there == {file["file"] for file in found}
