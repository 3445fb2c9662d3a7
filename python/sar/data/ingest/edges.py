"""Edges: numbered by the dictionaries of their ends, sorted, and written as CSR."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import BLOCK_BYTES, NpyWriter
from .bad_rows import Check, refuse_or_count
from .csr import CsrWriter
from .description import array_entry, edge_folder, file_name
from .engine import Engine, quoted
from .nodes import ID, NUMBER, Numbering
from .progress import Step
from .schema import Edges
from .tables import SQL_TYPES
from .values import Feature, arrays_of, features_of, id_sql, value_of

_RESERVED = ("indptr", "source")


class EdgeTable:
    """The edges of a type on their way into the directory of a graph: read, then numbered, then sorted and written.

    Text is read once and kept as a table, and so are values, whose order counts.

    :param source_type: the SQL type of the ids of sources
    """

    def __init__(self, engine: Engine, edges: Edges, source_type: str, target_type: str, step: Step) -> None:
        self._engine, self.edges = engine, edges
        self.rows = self.skipped = 0  # once they are numbered
        table = edges.table
        self._features = features_of(engine, table, edges.matrices, edges.columns)
        if edges.weight is not None:
            weight = value_of(engine, table, edges.weight, "float32")
            self._features.append(Feature("weight", [weight], "float32", ()))
        names = [feature.name for feature in self._features]
        for name in names:
            if name in _RESERVED or names.count(name) > 1:
                raise ValueError(f"{edges.title}: a feature cannot be called {name!r}: the name is taken")
        self._source = id_sql(edges.source, table.columns[edges.source], source_type)
        self._target = id_sql(edges.target, table.columns[edges.target], target_type)
        self._values = {f"v{k}": v for k, v in enumerate(v for feature in self._features for v in feature.values)}
        self._table = ""  # in SQL
        if table.is_text or self._values:
            self._table = engine.new_name("loaded")
            values = "".join(f", {value.sql} AS {v}" for v, value in self._values.items())
            sql = f"CREATE TABLE {self._table} AS SELECT {self._source} AS s, {self._target} AS t{values}"
            engine.run(f"{sql} FROM {table.sql()}", step, in_order=bool(values))

    def sql(self) -> str:
        """SQL of the edges, for one query: ids, and then numbers, in the columns s and t, values in v0, v1, …"""
        if self._table:
            return self._table
        return f"(SELECT {self._source} AS s, {self._target} AS t FROM {self.edges.table.sql()})"

    def number(self, source: Numbering, target: Numbering, skip: bool, step: Step) -> None:
        """Puts numbers in place of ids, and leaves out bad rows or refuses them."""
        engine, edges = self._engine, self.edges
        dtype = "BIGINT" if source.wide or target.wide else "INTEGER"
        joins, ends = "", {}
        for end, numbering in (("s", source), ("t", target)):
            if numbering.dictionary is None:
                ends[end] = f"CASE WHEN e.{end} BETWEEN 0 AND {numbering.count - 1} THEN CAST(e.{end} AS {dtype}) END"
            else:
                joins += f" LEFT JOIN {numbering.dictionary} d{end} ON d{end}.{quoted(ID)} = e.{end}"
                ends[end] = f"CAST(d{end}.{quoted(NUMBER)} AS {dtype})"
        order = ["e.rowid AS position"] if self._values else []
        columns = [*(f"{sql} AS {end}" for end, sql in ends.items()), *order, *(f"e.{v}" for v in self._values)]
        name = engine.new_name("numbered")
        engine.run(f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {self.sql()} e{joins}", step)
        if self._table:
            engine.run(f"DROP TABLE {self._table}")
        self._table = name
        values = [replace(value, sql=v).bad for v, value in self._values.items()]
        condition = " OR ".join(["s IS NULL", "t IS NULL", *values])
        rows, bad = engine.row(f"SELECT count(*), count(*) FILTER ({condition}) FROM {name}")
        self.skipped = refuse_or_count(engine, edges.table, edges.title, bad, self._check(source, target), skip)
        if bad:
            engine.run(f"DELETE FROM {name} WHERE {condition}")
        self.rows = rows - bad

    def write(self, root: Path, source: Numbering, target: Numbering, step: Step) -> dict[str, Any]:
        """Writes the edges into the directory of a graph, and gives their entry of graph.json."""
        edges = self.edges
        folder = edge_folder(root, edges.type)
        wide = source.wide or target.wide
        writer = CsrWriter(folder, target.count, np.int64 if source.wide else np.int32, edges.deduplicate)
        arrays = [NpyWriter(folder / f"{file_name(f.name)}.npy", f.dtype, f.row_shape) for f in self._features]
        width = (16 if wide else 8) + sum(a.dtype.itemsize * int(np.prod(a.row_shape)) for a in arrays)
        expected = self.rows * (2 if edges.symmetrize else 1)
        done = 0
        for batch in self._engine.batches(self._sorted(target.count), max(1, BLOCK_BYTES // width), step):
            taken = writer.write(batch.column("t").to_numpy(), batch.column("s").to_numpy())
            for array, rows in zip(arrays, arrays_of(self._features, batch)):
                array.write(rows[taken])
            done += batch.num_rows
            step.progress(done, max(expected, done), "edges")
        writer.close()
        for array in arrays:
            array.close()
        self._engine.run(f"DROP TABLE {self._table}")
        return {
            "type": list(edges.type),
            "count": writer.source.rows,
            "symmetric": True if edges.symmetrize else None,
            "indptr": array_entry(root, writer.indptr),
            "source": array_entry(root, writer.source),
            "features": {f.name: array_entry(root, a) for f, a in zip(self._features, arrays)},
        }

    def _check(self, source: Numbering, target: Numbering) -> Check:
        edges = self.edges
        cases, joins = [], ""
        for end, column, sql, numbering in (
            ("source", edges.source, self._source, source),
            ("target", edges.target, self._target, target),
        ):
            text = f"left(CAST({quoted(column)} AS VARCHAR), 40)"
            among = numbering.title.replace("'", "''")
            cases.append((f"{quoted(column)} IS NULL", f"'there is no {end}'"))
            cases.append((f"{sql} IS NULL", f"'the {end} is not an integer, as others are: ' || {text}"))
            if numbering.dictionary is None:
                last = numbering.count - 1
                cases.append((f"{sql} < 0", f"'the {end} is negative: ' || {text}"))
                beyond = f"'the {end} ' || {text} || ' is beyond the last of the {among}, {last}'"
                cases.append((f"{sql} > {last}", beyond))
            else:
                joins += f" LEFT JOIN {numbering.dictionary} d{end} ON d{end}.{quoted(ID)} = {sql}"
                missing = f"'the {end} ' || {text} || ' is not among the ids of the {among}'"
                cases.append((f"d{end}.{quoted(NUMBER)} IS NULL", missing))
        cases += [(value.bad, value.message) for value in self._values.values()]
        return Check(cases, joins)

    def _sorted(self, nodes: int) -> str:
        """SQL of all edges that are to be written, sorted by destination and source. An edge of the file comes before
        the reverse of a later one, so that of equal edges the first one stays."""
        edges, values, numbered = self.edges, self._values, self._table
        also = "".join(f", {v}" for v in values)
        position = (lambda side: f", 2 * position + {side} AS position") if values else (lambda side: "")
        parts = [f"SELECT s, t{position(0)}{also} FROM {numbered}"]
        if edges.symmetrize:
            parts.append(f"SELECT t, s{position(1)}{also} FROM {numbered} WHERE s <> t")
        if edges.self_loops:
            ones = "".join(f", {_ones(v.dtype, v.width)}" for v in values.values())
            place = ", -1" if values else ""
            parts.append(
                f"SELECT CAST(range AS {'BIGINT' if nodes > 2**31 - 1 else 'INTEGER'}) AS n, n{place}{ones} "
                f"FROM range({nodes}) WHERE n NOT IN (SELECT s FROM {numbered} WHERE s = t)"
            )
        order = ", position" if values else ""
        return f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY t, s{order}"


def _ones(dtype: str, width: Any) -> str:
    """SQL of the value that added self loops have: 1."""
    one = f"CAST(1 AS {SQL_TYPES[dtype]})"
    return one if width is None else f"CAST(list_value({', '.join([one] * width)}) AS {SQL_TYPES[dtype]}[{width}])"
