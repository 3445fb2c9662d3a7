"""Columns of nodes that are computed of the edges of a graph directory, and written into it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union

import torch
from torch import Tensor

from sar.data.directory import write_text
from sar.data.graph_directory import DESCRIPTION, EdgeType, GraphDirectory, write_checksums
from sar.data.ingest.arrays import NpyWriter, block_rows
from sar.data.ingest.description import array_entry, file_name, node_folder
from sar.data.ingest.progress import Stages, silent
from sar.data.ingest.workspace import workspace
from sar.units import size

from . import laplacian, profiles, walks
from .adjacency import Adjacency
from .lanczos import columns_of_basis
from .stored import BLOCK_BYTES, StoredAdjacency

_TOLERANCE, _MOST = 1e-8, 100_000
_NUMBER = 8  # bytes


class Kind(NamedTuple):
    """A column that can be added.

    :ivar compute: of an adjacency matrix, the number that was given, and bytes that vectors may take
    :ivar least: numbers for each node that are in memory at once at least, of the number that was given
    :ivar number: what the number that is given counts; empty: none is
    :ivar weighted: whether weights of edges count
    """

    compute: Callable[[Adjacency, int, int], Tensor]
    least: Callable[[int], int]
    number: str = ""
    weighted: bool = True


def _random_walk(adjacency: Adjacency, length: int, memory: int) -> Tensor:
    degrees = adjacency.degrees(out=True).clamp_(min=1)
    left = memory - adjacency.num_own * _NUMBER * (2 * length + 4)
    return walks.landing(adjacency, length, degrees, torch.float32, left)


def _laplacian(adjacency: Adjacency, k: int, memory: int) -> Tensor:
    fewest, best = columns_of_basis(k + 1)
    there = memory // (_NUMBER * max(1, adjacency.num_own)) - 6 * (k + 1) - 4
    return laplacian.eigenvectors(adjacency, k, False, _TOLERANCE, _MOST, max(fewest, min(best, there))).vectors


def _pagerank(adjacency: Adjacency, number: int, memory: int) -> Tensor:
    return walks.pagerank(adjacency, 0.85, None, 1e-10, _MOST)


def _profile(adjacency: Adjacency, number: int, memory: int) -> Tensor:
    return profiles.degree_profile(adjacency)


COLUMNS: dict[str, Kind] = {
    "random-walk-pe": Kind(_random_walk, lambda length: 2 * length + 8, "steps"),
    "laplacian-pe": Kind(_laplacian, lambda k: columns_of_basis(k + 1)[0] + 6 * (k + 1) + 4, "eigenvectors"),
    "pagerank": Kind(_pagerank, lambda number: 10),
    "degree-profile": Kind(_profile, lambda number: 16, weighted=False),
}
"""By the name that users give."""


class Wanted(NamedTuple):
    """A column to add: the kind, its number (0: none), and the name of the feature."""

    kind: str
    number: int
    name: str


def parsed(text: str, prefix: str = "") -> list[Wanted]:
    """Columns as users write them: ``random-walk-pe=16,pagerank``.

    :param prefix: of the names of features
    :raises ValueError: an unknown name, a number that is missing or is not wanted, or one name twice
    """
    found = []
    for word in text.split(","):
        name, equals, number = (part.strip() for part in word.partition("="))
        kind = COLUMNS.get(name)
        if kind is None:
            raise ValueError(f"there is no column {name!r} to add: give some of {', '.join(map(_usage, COLUMNS))}")
        counts = number.isascii() and number.isdigit() and int(number) > 0
        if bool(kind.number) != bool(equals) or (equals and not counts):
            raise ValueError(f"{word.strip()!r}: write {_usage(name)}" + (f", N {kind.number}" if kind.number else ""))
        found.append(Wanted(name, int(number or 0), prefix + name.replace("-", "_")))
    twice = {one.name for one in found if [other.name for other in found].count(one.name) > 1}
    if twice:
        raise ValueError(f"{', '.join(sorted(twice))}: given twice")
    return found


def _usage(name: str) -> str:
    return f"{name}=N" if COLUMNS[name].number else name


def least_memory(adjacency: StoredAdjacency, wanted: list[Wanted]) -> int:
    """Bytes without which the columns cannot be computed, beside the interpreter and its libraries."""
    rows = max(COLUMNS[one.kind].least(one.number) for one in wanted)
    return BLOCK_BYTES + rows * _NUMBER * adjacency.num_own


def add_columns(
    path: Union[str, os.PathLike[str]],
    wanted: list[Wanted],
    memory: int,
    out: Optional[str] = None,
    edge_type: Optional[str] = None,
    weight: Optional[str] = None,
    stages: Stages = silent,
) -> GraphDirectory:
    """Adds columns to the nodes of a graph directory: float32 files, which its description then names.

    :param out: a directory to make, with a copy of the others; None: the graph's own
    :param edge_type: ``source:relation:destination``, or the relation; it may be left out where there is one
    :param weight: the feature of edges that holds their weights; None: 1 each. Degree profiles count edges
    :param stages: shows a step, as ``sar ingest`` shows its own
    :returns: the directory
    :raises ValueError: a name that is taken, an edge type or weight that is not there, a directed graph where an
        undirected one is wanted, or too little memory
    :raises RuntimeError: eigenvectors that do not converge
    """
    graph = GraphDirectory(path)
    one = _chosen(graph, edge_type)
    there = graph.node_types[one.type[2]].features
    taken = [column.name for column in wanted if column.name in there]
    if taken:
        raise ValueError(f"{graph.file}: nodes have {', '.join(taken)} already: give --prefix to name others so")
    matrices = {weighted: StoredAdjacency(graph, one, weight if weighted else None) for weighted in (True, False)}
    least = least_memory(matrices[True], wanted)
    if memory < least:
        raise ValueError(f"these columns take {size(least)} of memory at least: give more with --memory")
    if out is None:
        _write(graph.path, matrices, one.type[2], wanted, memory, stages)
        return GraphDirectory(graph.path)
    with workspace(out, None, stages) as made:
        with stages(f"copying {graph.path}"):
            shutil.copytree(graph.path, made.graph, dirs_exist_ok=True)
        _write(made.graph, matrices, one.type[2], wanted, memory, stages)
        made.publish()
    return GraphDirectory(out)


def _chosen(graph: GraphDirectory, name: Optional[str]) -> EdgeType:
    known = {":".join(one.type): one for one in graph.edge_types}
    found = [one for key, one in known.items() if name in (None, key, one.type[1])]
    if len(found) != 1:
        problem = f"there is no edge type {name!r}" if not found else "there are several edge types"
        raise ValueError(f"{graph.file}: {problem}: give one of {', '.join(known) or 'none'} with --edges")
    return found[0]


def _write(
    root: Path,
    matrices: Mapping[bool, StoredAdjacency],
    node_type: str,
    wanted: list[Wanted],
    memory: int,
    stages: Stages,
) -> None:
    """Computes and writes the columns, then the description: a process that is killed leaves the graph as it was."""
    entries: dict[str, Any] = {}
    for column in wanted:
        with stages(f"computing {column.name}") as step:
            read = 0

            def told(edges: int, step: Any = step) -> None:
                nonlocal read
                read += edges
                step.progress(read, 0, "edges")

            kind = COLUMNS[column.kind]
            adjacency = matrices[kind.weighted]
            adjacency.told = told
            values = kind.compute(adjacency, column.number, memory - BLOCK_BYTES)
        entries[column.name] = array_entry(root, _file(root, node_type, column.name, values))
    _describe(root, node_type, entries)


def _file(root: Path, node_type: str, name: str, values: Tensor) -> NpyWriter:
    path = node_folder(root, node_type) / f"{file_name(name)}.npy"
    writer = NpyWriter(path, "float32", tuple(values.shape[1:]))
    for block in values.split(block_rows("float64", tuple(values.shape[1:]))):
        writer.write(block.numpy().astype("float32"))
    writer.close()
    return writer


def _describe(root: Path, node_type: str, entries: Mapping[str, Any]) -> None:
    """Puts files into the description. It is valid without checksums too, until these are made anew."""
    with open(root / DESCRIPTION, encoding="utf-8") as file:
        content = json.load(file)
    of_type = content["node_types"][node_type]
    of_type["features"] = {**(of_type.get("features") or {}), **entries}
    kept = {key: value for key, value in content.items() if key not in ("checksums", "checksum")}
    write_text(str(root / DESCRIPTION), json.dumps(kept, indent=1))
    write_checksums(root)
