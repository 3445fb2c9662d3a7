"""Writes graph.json, and names the files that it describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sar.data.graph_directory import DESCRIPTION, FORMAT, write_checksums

from .arrays import NpyWriter


def node_folder(root: Path, node_type: str) -> Path:
    """Where the files of a node type lie."""
    return root / "nodes" / file_name(node_type)


def edge_folder(root: Path, edge_type: tuple[str, str, str]) -> Path:
    """Where the files of an edge type lie."""
    return root / "edges" / "__".join(map(file_name, edge_type))


def file_name(name: str) -> str:
    """A name as a part of a path: letters, digits, ``_``, ``.`` and ``-`` as they are, others percent-encoded."""
    made = quote(name, safe="")
    return made if made.strip(".") else made.replace(".", "%2E")


def array_entry(root: Path, written: NpyWriter) -> dict[str, Any]:
    """What graph.json says of an array."""
    return {
        "file": written.path.relative_to(root).as_posix(),
        "dtype": written.dtype.name,
        "shape": [written.rows, *written.row_shape],
    }


def ids_entry(root: Path, path: Path, sql_type: str) -> dict[str, Any]:
    """What graph.json says of the ids of a node type."""
    return {"file": path.relative_to(root).as_posix(), "type": sql_type}


def write_description(
    root: Path, name: str, node_types: dict[str, dict[str, Any]], edge_types: list[dict[str, Any]]
) -> None:
    """Writes graph.json and the checksums, last of all files."""
    content = {"format": FORMAT, "name": name, "node_types": node_types, "edge_types": edge_types}
    with open(root / DESCRIPTION, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    write_checksums(root)
