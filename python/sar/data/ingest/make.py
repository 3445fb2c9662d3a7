"""Makes the directory of a graph, step by step."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

from sar.data.graph_directory import GraphDirectory

from .array_graphs import from_arrays, from_object, npy_directory
from .arrays import unpack_npz
from .chunked import METADATA, from_chunks
from .description import write_description
from .edges import EdgeTable
from .engine import Engine, quoted
from .nodes import ID, NodeFiles, Numbering
from .ogb import from_ogb, raw_folder
from .progress import Stages
from .schema import Graph, load_schema, parse
from .tables import Table
from .values import INTEGERS, holds_integers
from .workspace import workspace


def make(
    source: Any,
    out: Union[str, os.PathLike[str]],
    switches: Mapping[str, bool],
    skip_bad_rows: bool,
    memory: int,
    scratch: Union[str, os.PathLike[str], None],
    threads: Optional[int],
    name: Optional[str],
    stages: Stages,
) -> GraphDirectory:
    """What :func:`sar.ingest` does."""
    with workspace(out, scratch, stages) as made:
        with Engine(made.tables, memory, threads) as engine:
            graph = _read(source, engine, switches, made.tables / "arrays")
            graph.name = name or graph.name or made.out.name
            _write(graph, engine, made.graph, skip_bad_rows, stages)
        GraphDirectory(made.graph)  # what was written reads as what it should be
        made.publish()
    return GraphDirectory(made.out)


def _read(source: Any, engine: Engine, switches: Mapping[str, bool], scratch: Path) -> Graph:
    """What a source consists of."""
    if isinstance(source, Mapping):
        return parse(source, engine, Path(), "", switches)
    if isinstance(source, (str, os.PathLike)) and Path(source).suffix in (".yaml", ".yml"):
        return parse(load_schema(Path(source)), engine, Path(source).parent, str(source), switches)
    graph = _read_path(Path(source), engine, scratch) if isinstance(source, (str, os.PathLike)) else None
    graph = graph or from_object(source, engine)
    for edges in graph.edges:
        edges.deduplicate = switches["deduplicate"]
        if edges.type[0] == edges.type[2]:
            edges.symmetrize, edges.self_loops = switches["symmetrize"], switches["self_loops"]
    return graph


def _read_path(path: Path, engine: Engine, scratch: Path) -> Graph:
    """What a file or a directory holds that is no schema."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    metadata = path / METADATA if path.is_dir() else path
    if metadata.name == METADATA and metadata.is_file():
        return from_chunks(metadata, engine)
    if path.suffix == ".npz":
        return from_arrays(unpack_npz(path, scratch), str(path), engine)
    if path.is_dir():
        raw = raw_folder(path)
        if raw is not None:
            return from_ogb(raw, engine, scratch)
        arrays = npy_directory(path)
        if arrays:
            return from_arrays(arrays, str(path), engine)
    raise ValueError(
        f"{path}: expected a schema (.yaml), a graph in an .npz file, or a directory of .npy files, of OGB's raw files "
        f"or of DGL's chunks ({METADATA}). Tables of edges are given with --edges"
    )


def _write(graph: Graph, engine: Engine, root: Path, skip_bad_rows: bool, stages: Stages) -> None:
    types = {name: _id_type(graph, name, engine) for name in graph.nodes}
    tables: list[EdgeTable] = []
    for edges in graph.edges:
        with stages(f"reading {edges.title}") as step:
            tables.append(EdgeTable(engine, edges, types[edges.type[0]], types[edges.type[2]], step))
    numberings: dict[str, Numbering] = {}
    node_entries: dict[str, dict[str, Any]] = {}
    for name, nodes in graph.nodes.items():
        with stages(f"writing {nodes.title}") as step:
            files = NodeFiles(engine, root, nodes, types[name])
            if nodes.table is None and nodes.count is None and not nodes.arrays:
                ids = _distinct_ids(name, types[name], tables, engine, step)
                numberings[name] = files.write_ids(ids, step)
                engine.run(f"DROP TABLE {ids}")
            else:
                numberings[name] = files.write(skip_bad_rows, step)
            node_entries[name] = files.entry
            step.note = f"{numberings[name].count:,}{_skipped(files.skipped)}"
    edge_entries = []
    for one in tables:
        source, target = numberings[one.edges.type[0]], numberings[one.edges.type[2]]
        with stages(f"numbering {one.edges.title}") as step:
            one.number(source, target, skip_bad_rows, step)
            step.note = f"{one.rows:,}{_skipped(one.skipped)}"
        with stages(f"sorting and writing {one.edges.title}") as step:
            edge_entries.append(one.write(root, source, target, step))
            step.note = f"{edge_entries[-1]['count']:,}"
    write_description(root, graph.name, node_entries, edge_entries)


def _skipped(count: int) -> str:
    return f"; {count:,} bad rows left out" if count else ""


def _id_type(graph: Graph, name: str, engine: Engine) -> str:
    """The SQL type of the ids of a node type: BIGINT, UBIGINT, or VARCHAR where any column of them holds text.

    :raises ValueError: a column holds what cannot be an id
    """
    nodes = graph.nodes[name]
    columns: list[tuple[Table, str]] = []
    if nodes.table is not None and nodes.id is not None:
        columns.append((nodes.table, nodes.id))
    for edges in graph.edges:
        columns += [(edges.table, edges.source)] * (edges.type[0] == name)
        columns += [(edges.table, edges.target)] * (edges.type[2] == name)
    given = {table.columns[column] for table, column in columns}
    for table, column in columns:
        if re.match(r"FLOAT|DOUBLE|DECIMAL|.*\[|STRUCT|MAP|BLOB", table.columns[column]):
            raise ValueError(f"{table.name}: column {column!r} holds {table.columns[column]}; ids are integers or text")
    if nodes.id_type == "text":
        return "VARCHAR"
    by_number = nodes.id is None and (nodes.table is not None or nodes.count is not None or bool(nodes.arrays))
    if nodes.id_type == "integer" or by_number:
        return "UBIGINT" if given == {"UBIGINT"} else "BIGINT"
    for table, column in columns:
        if table.columns[column] not in INTEGERS and not (table.is_text and holds_integers(engine, table, column)):
            return "VARCHAR"
    return "UBIGINT" if given == {"UBIGINT"} else "BIGINT"


def _distinct_ids(name: str, sql_type: str, tables: list[EdgeTable], engine: Engine, step: Any) -> str:
    """A table with the ids of the nodes of a type that edges name, each once. Negative numbers are no ids: they usually
    stand for a node that is missing."""
    parts = []
    for one in tables:
        ends = ["s"] * (one.edges.type[0] == name) + ["t"] * (one.edges.type[2] == name)
        parts += [f"SELECT {end} AS {quoted(ID)} FROM {one.sql()}" for end in ends]
    keep = f"{quoted(ID)} >= 0" if sql_type != "VARCHAR" else f"{quoted(ID)} IS NOT NULL"
    table = engine.new_name("distinct")
    engine.run(f"CREATE TABLE {table} AS SELECT DISTINCT * FROM ({' UNION ALL '.join(parts)}) WHERE {keep}", step)
    return table
