"""Reads graph directories: what ``sar ingest`` writes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from sar._engine import library
from sar.data.directory import open_regular
from sar.errors import FormatError

FORMAT = "SAR graph 1"
DESCRIPTION = "graph.json"


@dataclass(frozen=True)
class Array:
    """An array of a graph directory: its file, relative to the directory, and what the file holds."""

    file: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Ids:
    """The users' ids of the nodes of a type: column ``id`` of a Parquet file, in the order of the nodes."""

    file: str
    type: str  # as DuckDB calls it


@dataclass(frozen=True)
class NodeType:
    """The nodes of one type. ``ids`` is None where the ids are 0 to count - 1."""

    name: str
    count: int
    ids: Optional[Ids] = None
    features: dict[str, Array] = field(default_factory=dict)
    classes: Optional[list[str]] = None


@dataclass(frozen=True)
class EdgeType:
    """The edges of one type, in CSR by destination: ``indptr`` int64 [destinations + 1], and ``source`` int32 or int64
    [edges], ascending in a row. Features have the order of ``source``. ``symmetric`` is None where it is unknown."""

    type: tuple[str, str, str]
    count: int
    indptr: Array
    source: Array
    symmetric: Optional[bool] = None
    features: dict[str, Array] = field(default_factory=dict)


class GraphDirectory:
    """A directory that holds a graph.

    :param path: the directory, or its ``graph.json``
    :raises sar.FormatError: it is not one, or its description and its files do not belong together
    :raises OSError: it cannot be read
    """

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        given = Path(path)
        self.path = given.parent if given.name == DESCRIPTION else given
        self.file = str(self.path / DESCRIPTION)
        if not self.path.is_dir():
            raise FormatError(f"{given}: expected the directory of a graph, as `sar ingest` writes it", str(given))
        if not os.path.exists(self.file):
            raise FormatError(
                f"{given} is not the directory of a graph: it holds no {DESCRIPTION}. `sar ingest` makes one",
                str(given),
            )
        try:
            with open_regular(self.file) as opened:
                content = json.load(opened)
            found = content.get("format") if isinstance(content, dict) else None
            if found != FORMAT:
                raise self._damage(f'the format "{FORMAT}"', f"{found!r}")
            self.name = str(content.get("name", self.path.name))
            self.node_types = {name: self._node_type(name, entry) for name, entry in content["node_types"].items()}
            self.edge_types = [self._edge_type(entry) for entry in content["edge_types"]]
        except FormatError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damage("the description of a graph", f"{type(error).__name__}: {error}") from None

    def map(self, array: Array) -> np.ndarray:
        """An array of the graph, mapped from its file for reading."""
        path = self.path / array.file
        if 0 in array.shape:
            return np.empty(array.shape, array.dtype)
        return np.load(path, mmap_mode="r", allow_pickle=False)

    def _damage(self, expected: str, found: str) -> FormatError:
        return FormatError(f"{self.file}: expected {expected}, found {found}", self.file)

    def _inside(self, name: Any) -> str:
        file = str(name)
        if os.path.isabs(file) or ".." in Path(file).parts:
            raise self._damage("names of files within the directory", repr(file))
        return file

    def _array(self, entry: dict[str, Any], rows: int) -> Array:
        shape = tuple(int(n) for n in entry["shape"])
        array = Array(self._inside(entry["file"]), str(entry["dtype"]), shape)
        if not shape or shape[0] != rows or min(shape) < 0:
            raise self._damage(f"{rows} rows in {array.file}", f"the shape {list(shape)}")
        path = self.path / array.file
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False) if path.is_file() else None
        except (ValueError, EOFError) as error:
            raise FormatError(f"{path}: expected a whole array in numpy's format, found {error}", str(path)) from None
        if found is None:
            raise FormatError(f"{path}: expected a file, found none", str(path))
        if found.shape != shape or found.dtype != np.dtype(array.dtype) or not found.flags.c_contiguous:
            raise FormatError(
                f"{path}: expected {array.dtype} {list(shape)} in C order, found {found.dtype} {list(found.shape)}",
                str(path),
            )
        return array

    def _node_type(self, name: str, entry: dict[str, Any]) -> NodeType:
        count = int(entry["count"])
        ids = entry.get("ids")
        if ids is not None:
            ids = Ids(self._inside(ids["file"]), str(ids.get("type", "")))
        features = {key: self._array(a, count) for key, a in entry.get("features", {}).items()}
        return NodeType(name, count, ids, features, entry.get("classes"))

    def _edge_type(self, entry: dict[str, Any]) -> EdgeType:
        source_type, relation, target_type = entry["type"]
        count = int(entry["count"])
        indptr = self._array(entry["indptr"], self.node_types[target_type].count + 1)
        source = self._array(entry["source"], count)
        if indptr.dtype != "int64" or source.dtype not in ("int32", "int64"):
            raise self._damage("int64 for indptr and int32 or int64 for source", f"{indptr.dtype}, {source.dtype}")
        if self.map(indptr)[-1] != count or self.map(indptr)[0] != 0:
            raise self._damage(f"an indptr from 0 to {count}", f"one to {self.map(indptr)[-1]}")
        features = {key: self._array(a, count) for key, a in entry.get("features", {}).items()}
        return EdgeType((source_type, relation, target_type), count, indptr, source, entry.get("symmetric"), features)


def is_graph_directory(path: Union[str, os.PathLike[str]]) -> bool:
    """Whether a path names a graph directory or its description. The description of parts may have the same name."""
    given = Path(path)
    file = given if given.name == DESCRIPTION else given / DESCRIPTION
    if not file.is_file():
        return False
    try:
        with open_regular(str(file)) as opened:
            content = json.load(opened)
    except ValueError:
        return True
    return not (isinstance(content, dict) and "num_parts" in content)


def write_checksums(path: Union[str, os.PathLike[str]]) -> None:
    """Writes ``checksums.crc`` into a directory, names it in its description, and gives that a checksum of its own.
    The engine holds what it reads against them.

    :raises sar.FormatError: the description is damaged, or a file that it names is
    """
    library.call("sar_graph_directory_sum", os.fsencode(path))


def verify(path: Union[str, os.PathLike[str]]) -> list[dict[str, Any]]:
    """Reads all files of a directory. For each a report: ``file``, ``bytes``, ``arrays``, ``checksums``, ``damage``."""
    found: list[dict[str, Any]] = library.json_call("sar_graph_directory_verify", os.fsencode(path))
    return found
