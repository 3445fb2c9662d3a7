"""Reads graph directories: what ``sar ingest`` writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

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


class Block(NamedTuple):
    """Edges that follow one another, from edge ``begin`` on: those of rows ``first .. first + len(indptr) - 2``, or the
    part of them that is in the block. ``indptr`` counts from 0."""

    begin: int
    first: int
    indptr: np.ndarray
    source: np.ndarray

    def target(self) -> np.ndarray:
        """The destination of each edge."""
        counts = np.diff(self.indptr)
        return np.repeat(np.arange(self.first, self.first + len(counts)), counts)


class GraphDirectory:
    """A directory that holds a graph. The engine holds its description and the headers of its files against each other.

    :ivar description: the content of ``graph.json``
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
        library.call("sar_dataset_close", library.call("sar_dataset_open", os.fsencode(self.path)))
        with open_regular(self.file) as opened:
            content = self.description = json.load(opened)
        self.name = str(content.get("name", self.path.name))
        self.node_types = {name: _node_type(name, entry) for name, entry in content["node_types"].items()}
        self.edge_types = [_edge_type(entry) for entry in content["edge_types"]]

    def map(self, array: Array) -> np.ndarray:
        """An array of the graph, mapped from its file for reading."""
        if 0 in array.shape:
            return np.empty(array.shape, array.dtype)
        return np.load(self.path / array.file, mmap_mode="r", allow_pickle=False)

    def blocks(self, one: EdgeType, size: int) -> Iterator[Block]:
        """The edges of a type, in order, so many at a time, copied from the file."""
        indptr = self.map(one.indptr)
        for begin in range(0, one.count, size):
            end = min(begin + size, one.count)
            first, last = (np.searchsorted(indptr, [begin, end - 1], side="right") - 1).tolist()
            ends = np.clip(indptr[first : last + 2], begin, end) - begin
            yield Block(begin, first, ends, np.array(self.map(one.source)[begin:end]))


def _node_type(name: str, entry: dict[str, Any]) -> NodeType:
    ids = entry.get("ids")
    found = Ids(ids["file"], str(ids.get("type", ""))) if ids else None
    return NodeType(name, entry["count"], found, _features(entry), entry.get("classes"))


def _edge_type(entry: dict[str, Any]) -> EdgeType:
    source, relation, target = entry["type"]
    indptr, sources = _array(entry["indptr"]), _array(entry["source"])
    symmetric = entry.get("symmetric")
    return EdgeType((source, relation, target), entry["count"], indptr, sources, symmetric, _features(entry))


def _array(entry: dict[str, Any]) -> Array:
    return Array(entry["file"], entry["dtype"], tuple(entry["shape"]))


def _features(entry: dict[str, Any]) -> dict[str, Array]:
    return {name: _array(of) for name, of in (entry.get("features") or {}).items()}


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
    return library.call("sar_graph_directory_verify", os.fsencode(path))
