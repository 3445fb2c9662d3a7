"""Reads the parts that another partitioner made, and checks them: every node has one, and there are no others."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from sar.data.directory import open_regular, scratch_directory
from sar.data.ingest.engine import literal
from sar.errors import FormatError
from sar.extras import need

from .dataset import Dataset
from .options import Options

_BLOCK = 1 << 20


def read_assignment(path: str, dataset: Dataset, options: Options) -> np.ndarray:
    """The part of each node, int32 ``[num_nodes]``, nodes numbered over all types.

    :param path: ``.npy``, integers ``[num_nodes]`` in that order; or Parquet with columns ``id`` and ``part``, and
        ``type`` where the graph has several node types. ``id`` is the user's where the graph directory has a
        dictionary of ids, else the number of the node
    :raises ValueError: a node without a part or with two, an id that is not in the graph, a part out of range
    """
    with open_regular(path):
        pass
    if path.endswith(".npy"):
        return _from_npy(path, dataset.num_nodes, options.parts)
    if path.endswith((".parquet", ".pq")):
        return _from_parquet(path, dataset, options)
    raise ValueError(f"--assignment {path}: expected a file that ends in .npy or .parquet")


def _from_npy(path: str, nodes: int, parts: int) -> np.ndarray:
    try:
        given = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise FormatError(f"{path} cannot be read as an .npy file: {error}", path) from None
    if given.shape != (nodes,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"{path} is {given.dtype} of shape {list(given.shape)}: a part for each of the graph's {nodes} nodes is "
            f"needed, integers of shape [{nodes}]"
        )
    assignment = np.empty(nodes, np.int32)
    for at in range(0, nodes, _BLOCK):
        block = given[at : at + _BLOCK]
        wrong = np.flatnonzero((block < 0) | (block >= parts))
        if len(wrong):
            raise ValueError(
                f"{path}: node {at + wrong[0]} has part {block[wrong[0]]}, and there are the parts 0 to {parts - 1}"
            )
        assignment[at : at + _BLOCK] = block
    return assignment


def _from_parquet(path: str, dataset: Dataset, options: Options) -> np.ndarray:
    duckdb = need("duckdb", "ingest", f"--assignment {path}", "give an .npy file")
    with scratch_directory(os.path.join(options.scratch, f".{os.path.basename(path)}.partial")) as spill:
        settings = {"memory_limit": f"{max(64, options.memory >> 21)}MiB", "temp_directory": spill}
        with duckdb.connect(config=settings) as database:
            database.execute("SET enable_progress_bar = false")  # which writes to standard output
            try:
                return _Join(database, path, dataset, options.parts).run()
            except duckdb.Error as error:
                raise FormatError(f"{path} cannot be read: {error}", path) from None


class _Join:
    """Joins a table of ids and parts with the ids of the graph."""

    def __init__(self, database: Any, path: str, dataset: Dataset, parts: int) -> None:
        self.database, self.path, self.parts = database, path, parts
        self.types: list[dict[str, Any]] = dataset.info["node_types"]
        self.dictionaries: dict[str, str] = dataset.info["ids"] or {}
        self.assignment = np.full(dataset.num_nodes, -1, np.int32)

    def run(self) -> np.ndarray:
        columns = {row[0]: row[1] for row in self._rows(f"DESCRIBE SELECT * FROM {_parquet(self.path)}")}
        wanted = ["id", "part", *(["type"] if len(self.types) > 1 else [])]
        missing = [name for name in wanted if name not in columns]
        if missing or "INT" not in columns["part"]:
            raise ValueError(
                f"{self.path} has the columns {', '.join(f'{n} ({t})' for n, t in columns.items())}: "
                f"{', '.join(wanted)} are needed, part an integer"
            )
        bad = f"part IS NULL OR part < 0 OR part >= {self.parts}"
        for ident, part in self._rows(f"SELECT id, part FROM {_parquet(self.path)} WHERE {bad} LIMIT 1"):
            known = f"there are the parts 0 to {self.parts - 1}"
            raise ValueError(f"{self.path}: id {ident!r} has part {part}, and {known}")
        begin = given = 0
        for kind in self.types:
            of_type = "" if len(self.types) == 1 else f"WHERE type = {literal(kind['name'])}"
            given += self._one_type(begin, kind, f"(SELECT id, part FROM {_parquet(self.path)} {of_type})")
            begin += kind["rows"]
        ((rows,),) = self._rows(f"SELECT count(*) FROM {_parquet(self.path)}")
        if rows != given:
            names = ", ".join(kind["name"] for kind in self.types)
            raise ValueError(f"{self.path} has {rows - given} rows of other types than the graph's, which are {names}")
        return self.assignment

    def _one_type(self, begin: int, kind: dict[str, Any], table: str) -> int:
        """Fills the parts of one node type; returns the number of rows of the table."""
        nodes = kind["rows"]
        dictionary = self.dictionaries.get(kind["name"])
        if dictionary is None:
            numbers = f"SELECT range AS id, range AS number FROM range({nodes})"
        else:
            numbers = f"SELECT id, file_row_number AS number FROM {_parquet(dictionary, 'file_row_number = true')}"
        of = "" if len(self.types) == 1 else f" of node type {kind['name']}"
        found = f"SELECT number, part FROM {table} AS given JOIN ({numbers}) AS known USING (id)"
        mine = self.assignment[begin : begin + nodes]
        matched = 0
        for batch in self.database.sql(found).to_arrow_reader(_BLOCK):
            number = batch.column(0).to_numpy()
            if len(number) and int(number.max()) >= nodes:
                raise FormatError(f"{dictionary} has more ids than the graph has nodes{of}, {nodes}", str(dictionary))
            mine[number] = batch.column(1).to_numpy()
            matched += len(number)
        ((rows,),) = self._rows(f"SELECT count(*) FROM {table}")
        if matched < rows:
            unknown = f"SELECT id FROM {table} AS given ANTI JOIN ({numbers}) AS known USING (id) LIMIT 1"
            ((ident,),) = self._rows(unknown)
            raise ValueError(f"{self.path}: id {ident!r} is none of the graph's{of}; {rows - matched} rows are such")
        lacking = int(np.count_nonzero(mine < 0))
        if lacking:
            number = int(np.flatnonzero(mine < 0)[0])
            ((ident,),) = self._rows(f"SELECT id FROM ({numbers}) WHERE number = {number}")
            raise ValueError(f"{self.path} has no part for id {ident!r}{of}; {lacking} of {nodes} nodes have none")
        if rows > nodes:
            twice = f"SELECT id FROM {table} GROUP BY id HAVING count(*) > 1 LIMIT 1"
            ((ident,),) = self._rows(twice)
            raise ValueError(f"{self.path} names id {ident!r}{of} more than once; {rows - nodes} rows are too many")
        return int(rows)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.database.execute(sql).fetchall()


def _parquet(path: str, options: str = "") -> str:
    return f"read_parquet([{literal(path)}]{', ' + options if options else ''})"
