"""What a graph is made of: tables of nodes and of edges, and which of their columns are what."""

from __future__ import annotations

import difflib
import fnmatch
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from .arrays import Rows, joined
from .engine import Engine, import_extra
from .tables import FileTable, Table, find_files, pair_table, side_by_side

NODE, EDGE = "_N", "_E"  # names where there is one type, as in DGL
ONE = (NODE, EDGE, NODE)
Triple = tuple[str, str, str]

_FORMAT = {"header", "delimiter"}
_NODE_KEYS = {"files", "id", "id_type", "features", "columns", "label", "unlabelled", "split", "count"} | _FORMAT
_EDGE_KEYS = {"files", "source", "target", "features", "columns", "weight"} | _FORMAT
_EDGE_SWITCHES = {"symmetrize", "deduplicate", "self_loops"}
_SOURCE_NAMES = ("source", "src", "from", "u", "head")
_TARGET_NAMES = ("target", "dst", "to", "v", "tail", "destination")


@dataclass
class Nodes:
    """The nodes of one type.

    ``table`` has a row for each node, in the order of their numbers. Without it the nodes are the ids in the edges, or
    the numbers 0 to ``count`` - 1. ``id`` is the table's column of ids; without it ids are row numbers. ``matrices``
    are features of several columns each, float32 ``[nodes, columns]``; ``columns`` those of one column, with its own
    dtype. ``arrays`` are features that come as arrays, and are copied as they are.
    """

    name: str
    table: Optional[Table] = None
    count: Optional[int] = None
    id: Optional[str] = None
    id_type: Optional[str] = None  # "integer" or "text"; None to look at the data
    matrices: dict[str, list[str]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, Rows] = field(default_factory=dict)
    label: list[str] = field(default_factory=list)
    unlabelled: Optional[str] = None  # the text of labels that stand for no label, besides an empty one
    split: Optional[str] = None
    known_ids: Optional[tuple[Table, str, str]] = None  # of nodes that edges name by number: columns number and id

    @property
    def title(self) -> str:
        """``nodes of type NAME``; "nodes" where there is one type."""
        return "nodes" if self.name == NODE else f"nodes of type {self.name}"


@dataclass
class Edges:
    """The edges of one type: a row of ``table`` for each."""

    type: Triple
    table: Table
    source: str
    target: str
    matrices: dict[str, list[str]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    weight: Optional[str] = None
    symmetrize: bool = False
    deduplicate: bool = False
    self_loops: bool = False

    @property
    def title(self) -> str:
        """``source:relation:destination``; "edges" where there is one type."""
        return "edges" if self.type == ONE else ":".join(self.type)


def add_beside(owner: Union[Nodes, Edges], feature: str, table: Table, matrix: bool = False) -> None:
    """Makes a feature of a table whose rows are those of nodes or of edges: a matrix of its columns, or where there is
    one, its values with a dtype of their own."""
    owner.table, columns = side_by_side(owner.table, table, f"{feature}.")
    if len(columns) > 1 or matrix:
        owner.matrices[feature] = columns
    else:
        owner.columns[feature] = columns[0]


@dataclass
class Graph:
    """All types of a graph."""

    name: str
    nodes: dict[str, Nodes]
    edges: list[Edges]


def load_schema(path: Path) -> dict[str, Any]:
    """The content of a schema file.

    :raises ValueError: it is not YAML, or not a mapping
    """
    yaml = import_extra("yaml")
    with open(path, encoding="utf-8") as file:
        try:
            content = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a mapping with the keys nodes and edges, found {type(content).__name__}")
    return content


def parse(content: Mapping[str, Any], engine: Engine, base: Path, where: str, switches: Mapping[str, bool]) -> Graph:
    """A graph from the content of a schema.

    :param base: the directory that names of files are relative to
    :param where: what messages call the schema
    :param switches: symmetrize, deduplicate and self_loops of edge types that do not say it themselves
    :raises ValueError: keys or columns that are not known
    """
    _check_keys(content, {"name", "nodes", "edges"}, where or "the graph")
    nodes: dict[str, Nodes] = {}
    for name, entry in _mapping(content.get("nodes") or {}, _place(where, "nodes")).items():
        nodes[str(name)] = _nodes(str(name), entry or {}, engine, base, _place(where, "nodes", str(name)))
    listed = _mapping(content.get("edges") or {}, _place(where, "edges"))
    if not listed:
        raise ValueError(f"{where or 'the graph'}: there are no edges")
    edges, declared = [], list(nodes)
    for name, entry in listed.items():
        place = _place(where, "edges", str(name))
        triple = triple_of(str(name), f"{place}: expected a name source:relation:destination")
        for end in triple[::2]:
            if declared and end not in declared:
                raise ValueError(f"{place}: there is no node type {end!r}, but {', '.join(declared)}")
            nodes.setdefault(end, Nodes(end))
        edges.append(_edges(triple, entry or {}, engine, base, place, switches))
    return Graph(str(content.get("name") or ""), nodes, edges)


def triple_of(text: str, trouble: str) -> Triple:
    """The three names of ``source:relation:destination``.

    :raises ValueError: with the text ``trouble``
    """
    parts = text.split(":")
    if len(parts) != 3 or not all(parts):
        raise ValueError(trouble)
    return parts[0], parts[1], parts[2]


def _nodes(name: str, entry: Any, engine: Engine, base: Path, where: str) -> Nodes:
    entry = _mapping(entry, where)
    _check_keys(entry, _NODE_KEYS, where)
    id_type = entry.get("id_type")
    if id_type not in (None, "integer", "text"):
        raise ValueError(f"{where}: id_type is integer or text, not {id_type!r}")
    count = entry.get("count")
    if count is not None and (not isinstance(count, int) or count < 0):
        raise ValueError(f"{where}: count is a number of nodes, not {count!r}")
    table = _table(entry, engine, base, where) if "files" in entry else None
    found = Nodes(name, table, count, id_type=id_type)
    found.id = _column(table, entry.get("id"), where, "id")
    found.split = _column(table, entry.get("split"), where, "split")
    found.label = _columns(table, entry.get("label"), where, "label")
    if entry.get("unlabelled") is not None:
        _expect_files(table, where, "unlabelled")
        found.unlabelled = str(entry["unlabelled"])
    found.matrices, found.arrays = _matrices(table, entry.get("features"), base, where)
    found.columns = {c: c for c in _columns(table, entry.get("columns"), where, "columns")}
    return found


def _edges(triple: Triple, entry: Any, engine: Engine, base: Path, where: str, switches: Mapping[str, bool]) -> Edges:
    entry = _mapping(entry, where)
    _check_keys(entry, _EDGE_KEYS | _EDGE_SWITCHES, where)
    if "files" not in entry:
        raise ValueError(f"{where}: files are missing")
    table = _table(entry, engine, base, where)
    source, target = _ends(table, entry.get("source"), entry.get("target"), where)
    matrices, arrays = _matrices(table, entry.get("features"), base, where)
    if arrays:
        raise ValueError(f"{where}: features of edges are columns of their table, not {', '.join(arrays)}")
    columns = {c: c for c in _columns(table, entry.get("columns"), where, "columns")}
    one = Edges(triple, table, source, target, matrices, columns)
    one.weight = _column(table, entry.get("weight"), where, "weight")
    for switch in sorted(_EDGE_SWITCHES):
        value = entry.get(switch, switches.get(switch, False) and (triple[0] == triple[2] or switch == "deduplicate"))
        if not isinstance(value, bool):
            raise ValueError(f"{where}: {switch} is true or false, not {value!r}")
        setattr(one, switch, value)
    if triple[0] != triple[2] and (one.symmetrize or one.self_loops):
        raise ValueError(f"{where}: symmetrize and self_loops are for edges between nodes of one type")
    return one


def _ends(table: Table, source: Any, target: Any, where: str) -> tuple[str, str]:
    """The columns of the ends of an edge: those that are named, or that are called as they usually are, or the only two
    that there are."""
    names = list(table.columns)
    lower = {name.lower(): name for name in reversed(names)}
    found = [
        _column(table, given, where, key) or next((lower[n] for n in usual if n in lower), None)
        for given, usual, key in ((source, _SOURCE_NAMES, "source"), (target, _TARGET_NAMES, "target"))
    ]
    if found[0] is None and found[1] is None and len(names) == 2:
        found = [names[0], names[1]]
    if found[0] is None or found[1] is None:
        key = "source" if found[0] is None else "target"
        raise ValueError(f"{where}: which column is the {key} of an edge? Give {key}; {table.name} has {_list(names)}")
    return found[0], found[1]


def _matrices(
    table: Optional[Table], given: Any, base: Path, where: str
) -> tuple[dict[str, list[str]], dict[str, Rows]]:
    """Features: columns, or a mapping from names to columns or to ``.npy`` files."""
    from_columns: dict[str, list[str]] = {}
    from_files: dict[str, Rows] = {}
    listed = given if isinstance(given, Mapping) else ({} if given is None else {"features": given})
    for name, value in listed.items():
        if isinstance(value, str) and value.endswith(".npy"):
            from_files[str(name)] = joined(find_files([value], base))
        else:
            from_columns[str(name)] = _columns(table, value, where, "features")
    return from_columns, from_files


def _table(entry: Mapping[str, Any], engine: Engine, base: Path, where: str) -> Table:
    header = entry.get("header", True)
    if not isinstance(header, bool):
        raise ValueError(f"{where}: header is true or false, not {header!r}")
    files = find_files(_names(entry["files"], where), base)
    if files[0].endswith(".npy"):
        return pair_table(engine, joined(files))
    return FileTable(engine, files, header=header, delimiter=entry.get("delimiter"))


def _expect_files(table: Optional[Table], where: str, key: str) -> Table:
    if table is None:
        raise ValueError(f"{where}: {key}: needs files that have the columns")
    return table


def _column(table: Optional[Table], name: Any, where: str, key: str) -> Optional[str]:
    if name is None:
        return None
    table = _expect_files(table, where, key)
    if str(name) not in table.columns:
        there = f"{_list(list(table.columns))}.{_meant(str(name), table.columns)}"
        raise ValueError(f"{where}: {key}: {table.name} has no column {name!r}, but {there}")
    return str(name)


def _columns(table: Optional[Table], value: Any, where: str, key: str) -> list[str]:
    """Columns by name, or by a pattern such as ``w*``: all that match it, in the order of the table."""
    found: list[str] = []
    for name in _names(value, where):
        columns = [] if table is None or name in table.columns else fnmatch.filter(table.columns, name)
        found += columns or [_column(table, name, where, key) or ""]
    return found


def _place(*words: str) -> str:
    """Where something stands, in words. Names that a graph of one type has are left out."""
    return ": ".join(word for word in words if word and word not in (NODE, ":".join(ONE)))


def _names(value: Any, where: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, (str, int, os.PathLike)):
        return [str(value)]
    if isinstance(value, Sequence):
        return [str(v) for v in value]
    raise ValueError(f"{where}: expected a name or a list of names, found {value!r}")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expected a mapping, found {value!r}")
    return value


def _check_keys(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in entry:
        if key not in known:
            there = f"{', '.join(sorted(known))}.{_meant(str(key), known)}"
            raise ValueError(f"{where}: unknown key {key!r}; known are {there}")


def _meant(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]}?" if near else ""


def _list(names: list[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
