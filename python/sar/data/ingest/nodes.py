"""Nodes: their numbers, the dictionary of their ids, and their features."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from .arrays import BLOCK_BYTES, NpyWriter, copy_rows
from .bad_rows import Check, refuse_or_count
from .description import array_entry, file_name, ids_entry, node_folder
from .engine import Engine, import_extra, literal, quoted
from .labels import Mark, labels_of, splits_of
from .progress import Step
from .schema import Nodes
from .tables import Table
from .values import Feature, arrays_of, features_of, holds_integers, id_sql

ID = "sar id"  # columns of a dictionary in SQL
NUMBER = "sar number"
_IDS = "ids.parquet"


@dataclass(frozen=True)
class Numbering:
    """How ids of a node type become numbers. ``title`` is what messages call its nodes; ``dictionary`` is a view with
    the columns ``ID`` and ``NUMBER``, None where ids are the numbers 0 to ``count`` - 1."""

    title: str
    count: int
    dictionary: Optional[str] = None

    @property
    def wide(self) -> bool:
        """Whether numbers need 64 bits."""
        return self.count > 2**31 - 1


class NodeFiles:
    """The nodes of a type on their way into the directory of a graph. ``entry`` is what graph.json says of them.

    :param sql_type: of their ids
    """

    def __init__(self, engine: Engine, root: Path, nodes: Nodes, sql_type: str) -> None:
        self._engine, self._root, self._nodes, self._sql_type = engine, root, nodes, sql_type
        self._folder = node_folder(root, nodes.name)
        self.entry: dict[str, Any] = {"count": nodes.count, "ids": None, "features": {}}
        self.skipped = 0
        self._id: Optional[str] = None  # in SQL
        self._features: list[Feature] = []
        self._marks: list[Mark] = []
        self._twice: Optional[str] = None  # a table of ids that occur more than once

    def write(self, skip: bool, step: Step) -> Numbering:
        """Writes nodes that have a table, arrays or a count.

        :param skip: whether bad rows are left out
        """
        if self._nodes.table is not None:
            self._write_table(self._nodes.table, skip, step)
        for name, rows in self._nodes.arrays.items():
            if self.entry["count"] is None:
                self.entry["count"] = len(rows)
            if len(rows) != self.entry["count"]:
                there = f"there are {self.entry['count']:,} {self._nodes.title} (feature {name})"
                raise ValueError(f"{rows.name} has the shape {list(rows.shape)}; {there}")
            written = copy_rows(rows, self._folder / f"{file_name(name)}.npy")
            self.entry["features"][name] = array_entry(self._root, written)
        numbering = self._numbering()
        if self._nodes.known_ids is not None:  # of nodes that edges name by their numbers
            table, number, key = self._nodes.known_ids
            sql_type = "BIGINT" if holds_integers(self._engine, table, key) else "VARCHAR"
            made, order = id_sql(key, table.columns[key], sql_type), f"TRY_CAST({quoted(number)} AS BIGINT)"
            count = self._write_ids(f"SELECT {made} AS id FROM {table.sql()} ORDER BY {order}", sql_type)
            self._expect_rows(table.name, count, self.entry["count"])
        return numbering

    def write_ids(self, ids: str, step: Step) -> Numbering:
        """Writes nodes that are known by the edges alone: they are the ids there, in ascending order.

        :param ids: a table in SQL with the distinct ids in the column ``ID``
        """
        key = quoted(ID)
        count, low, high = self._engine.row(f"SELECT count(*), min({key}), max({key}) FROM {ids}")
        self.entry["count"] = count
        if self._sql_type == "VARCHAR" or low != 0 or high != count - 1:
            self._write_ids(f"SELECT {key} AS id FROM {ids} ORDER BY {key}", self._sql_type, step)
        return self._numbering()

    def _write_ids(self, sql: str, sql_type: str, step: Optional[Step] = None) -> int:
        rows, path = 0, self._folder / _IDS
        path.parent.mkdir(parents=True, exist_ok=True)
        with _ids_writer(path, sql_type) as writer:
            for batch in self._engine.batches(sql, 1 << 18, step):
                writer.write_batch(batch)
                rows += batch.num_rows
        self.entry["ids"] = ids_entry(self._root, path, sql_type)
        return rows

    def _numbering(self) -> Numbering:
        dictionary = None
        if self.entry["ids"]:
            dictionary = self._engine.new_name("ids")
            self._engine.run(
                f"CREATE VIEW {dictionary} AS SELECT id AS {quoted(ID)}, file_row_number AS {quoted(NUMBER)} "
                f"FROM read_parquet({literal(str(self._folder / _IDS))}, file_row_number = true)"
            )
        return Numbering(self._nodes.title, self.entry["count"], dictionary)

    def _expect_rows(self, name: str, rows: int, count: int) -> None:
        if rows != count:
            raise ValueError(f"{name} has {rows:,} rows, but there are {count:,} {self._nodes.title}")

    def _write_table(self, table: Table, skip: bool, step: Step) -> None:
        nodes = self._nodes
        self._read_schema(table)
        twice = self._find_twice(table)
        if twice and not skip:
            refuse_or_count(self._engine, table, nodes.title, twice, self._check(), False)
        count, bad = self._write_rows(table, twice > 0, step)
        self.skipped = refuse_or_count(self._engine, table, nodes.title, bad, self._check(), skip)
        if nodes.count is not None:
            self._expect_rows(table.name, count, nodes.count)
        if bad and nodes.arrays:
            raise ValueError(
                f"{table.name}: {bad:,} rows cannot be left out, because the rows of "
                f"{next(iter(nodes.arrays.values())).name} belong to them"
            )
        self.entry["count"] = count
        classes = next((mark.classes for mark in self._marks if mark.classes), None)
        if classes is not None:  # labels are names
            self.entry["classes"] = classes
        if nodes.id is not None:
            self.entry["ids"] = ids_entry(self._root, self._folder / _IDS, self._sql_type)

    def _read_schema(self, table: Table) -> None:
        """Finds what the columns of the table of nodes are."""
        nodes = self._nodes
        if nodes.id is not None:
            self._id = id_sql(nodes.id, table.columns[nodes.id], self._sql_type)
        self._features = features_of(self._engine, table, nodes.matrices, nodes.columns)
        if len(nodes.label) == 1:
            self._marks.append(labels_of(self._engine, table, nodes.label[0], nodes.unlabelled))
        elif nodes.label:
            self._features += features_of(self._engine, table, {"labels": nodes.label}, {})
        if nodes.split is not None:
            self._marks.append(splits_of(nodes.split))
        self._all_features = [*self._features, *(feature for mark in self._marks for feature in mark.features)]
        names = [*(feature.name for feature in self._all_features), *nodes.arrays]
        again = next((name for name in names if names.count(name) > 1), None)
        if again:
            raise ValueError(f"{nodes.title}: there are two features of the name {again!r}")

    def _find_twice(self, table: Table) -> int:
        """Counts rows whose id another row before them has."""
        if self._id is None:
            return 0
        self._twice = self._engine.new_name("twice")
        listed = f"SELECT {self._id} AS {quoted(ID)} FROM {table.sql()}"
        self._engine.run(
            f"CREATE TEMP TABLE {self._twice} AS SELECT {quoted(ID)}, count(*) AS n FROM ({listed}) "
            f"WHERE {quoted(ID)} IS NOT NULL GROUP BY ALL HAVING count(*) > 1"
        )
        return int(self._engine.row(f"SELECT coalesce(sum(n - 1), 0) FROM {self._twice}")[0])

    def _check(self) -> Check:
        """Everything that may be wrong with a row."""
        cases, joins = self._cases(), ""
        if self._twice is not None:
            joins = f"LEFT JOIN {self._twice} d ON d.{quoted(ID)} = {self._id}"
            cases.append(("d.n IS NOT NULL", f"'the id ' || {self._id} || ' is in ' || d.n || ' rows'"))
        return Check(cases, joins)

    def _cases(self, *, values: bool = True) -> list[tuple[str, str]]:
        cases: list[tuple[str, str]] = []
        if self._id is not None:
            column = quoted(self._nodes.id or "")
            cases.append((f"{column} IS NULL", "'there is no id'"))
            cases.append((f"{self._id} IS NULL", f"'the id is not an integer, as others are: ' || {column}"))
        if values:
            cases += [(value.bad, value.message) for feature in self._features for value in feature.values]
        return cases + [(mark.bad, mark.message) for mark in self._marks]

    def _write_rows(self, table: Table, drop_twice: bool, step: Step) -> tuple[int, int]:
        """Writes ids, features, labels and masks of rows that are not bad: how many these are, and the bad rows."""
        dropped = self._later_rows(table) if drop_twice else np.empty(0, np.int64)
        values = [value for feature in self._all_features for value in feature.values]
        checked = sum(len(feature.values) for feature in self._features)
        columns = [f"{value.sql} AS v{k}" for k, value in enumerate(values)]
        if self._id is not None:
            columns.append(f"{self._id} AS id")
        # values are looked at in their arrays: one expression of a thousand columns takes DuckDB minutes
        columns.append(f"{_any([bad for bad, _ in self._cases(values=False)])} AS bad")
        columns.append(f"{table.position} AS position")
        width = 64 + sum((value.width or 1) * np.dtype(value.dtype).itemsize for value in values)
        sql = f"SELECT {', '.join(columns)} FROM {table.sql()}"
        self._folder.mkdir(parents=True, exist_ok=True)
        writers = {
            feature.name: NpyWriter(self._folder / f"{file_name(feature.name)}.npy", feature.dtype, feature.row_shape)
            for feature in self._all_features
        }
        begin = count = bad = 0
        with _ids_writer(self._folder / _IDS, self._sql_type) if self._id is not None else nullcontext() as ids:
            for batch in self._engine.batches(sql, max(1, BLOCK_BYTES // width), step, in_order=True):
                rows = batch.num_rows
                _check_order(batch)
                batch, lost = _without(batch, begin, dropped, checked)
                begin, bad = begin + rows, bad + lost
                count += batch.num_rows
                if ids is not None:
                    ids.write_batch(batch.select(["id"]))
                for writer, block in zip(writers.values(), arrays_of(self._all_features, batch)):
                    writer.write(block)
                step.progress(begin, 0, "rows")
        for name, writer in writers.items():
            writer.close()
            self.entry["features"][name] = array_entry(self._root, writer)
        if begin == 0:
            raise ValueError(f"{self._nodes.title}: {table.name} has no rows")
        return count, bad

    def _later_rows(self, table: Table) -> np.ndarray:
        """Positions of rows whose id a row before them has, ascending."""
        numbered = f"SELECT {self._id} AS id, row_number() OVER () - 1 AS position FROM {table.sql()}"
        sql = (
            f"SELECT position FROM ({numbered}) r SEMI JOIN {self._twice} d ON d.{quoted(ID)} = r.id "
            "QUALIFY row_number() OVER (PARTITION BY id ORDER BY position) > 1 ORDER BY position"
        )
        found = [batch.column(0).to_numpy() for batch in self._engine.batches(sql, 1 << 20, in_order=True)]
        return np.concatenate(found) if found else np.empty(0, np.int64)


def _check_order(batch: Any) -> None:
    """Fails where the rows of a file do not follow one another, in case DuckDB does not keep the order it promises."""
    position = batch.column("position").to_numpy(zero_copy_only=False)
    if not ((np.diff(position) == 1) | (position[1:] == 0)).all():
        raise RuntimeError("DuckDB gave rows in another order than that of the file")


def _without(batch: Any, begin: int, dropped: np.ndarray, values: int) -> tuple[Any, int]:
    """A batch that begins with row ``begin`` without its bad and its dropped rows, and how many these were. Rows are
    bad, too, where one of the columns v0, v1, … is NULL or NaN."""
    keep = ~batch.column("bad").to_numpy(zero_copy_only=False).astype(bool)
    for k in range(values):
        keep &= batch.column(f"v{k}").is_valid().to_numpy(zero_copy_only=False)
        if str(batch.column(f"v{k}").type) in ("float", "double"):
            keep &= ~np.isnan(batch.column(f"v{k}").to_numpy(zero_copy_only=False))
    low, high = np.searchsorted(dropped, [begin, begin + batch.num_rows])
    keep[dropped[low:high] - begin] = False
    lost = int(len(keep) - np.count_nonzero(keep))
    if lost == 0:
        return batch, 0
    return batch.filter(import_extra("pyarrow").array(keep)), lost


def _any(conditions: list[str]) -> str:
    return f"coalesce({' OR '.join(conditions)}, false)" if conditions else "false"


def _ids_writer(path: Path, sql_type: str) -> Any:
    """Writes record batches with the column ``id`` to a Parquet file."""
    pa, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    arrow_type = {"BIGINT": pa.int64(), "UBIGINT": pa.uint64()}.get(sql_type, pa.string())
    return parquet.ParquetWriter(str(path), pa.schema([("id", arrow_type)]), compression="zstd")
