"""Edges: numbered by the dictionaries of their ends, sorted, and written as CSR."""

from __future__ import annotations

from dataclasses import dataclass
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
from .values import SQL_TYPES, Feature, features_of, id_sql

_RESERVED = ("indptr", "source")


@dataclass(frozen=True)
class NumberedEdges:
    """A table of edges with numbers in place of ids, in the columns s and t, its number of rows, and of those that were
    left out."""

    table: str
    rows: int
    skipped: int


@dataclass
class LoadedEdges:
    """The edges of a type as they were read: ``sql`` has their ids as the columns s and t, and their values as v0, v1,
    …; in the order of the file, where they have values."""

    edges: Edges
    sql: str
    features: list[Feature]
    source_id: str  # SQL on the table
    target_id: str

    @property
    def values(self) -> list[str]:
        return [f"v{k}" for k in range(sum(len(feature.values) for feature in self.features))]


class EdgeWriter:
    """Writes the edges of a type into the directory of a graph."""

    def __init__(self, engine: Engine, root: Path, skip_bad_rows: bool) -> None:
        self._engine = engine
        self._root = root
        self._skip = skip_bad_rows

    def load(self, edges: Edges, source_type: str, target_type: str, step: Step) -> LoadedEdges:
        """Prepares reading: text is read once and kept as a table, and so are values, whose order counts.

        :param source_type: the SQL type of the ids of sources
        """
        table, engine = edges.table, self._engine
        matrices = dict(edges.matrices)
        features = features_of(engine, table, matrices, edges.columns)
        if edges.weight is not None:
            weight = features_of(engine, table, {"weight": [edges.weight]}, {})[0]
            features.append(Feature("weight", weight.values, "float32", ()))
        names = [feature.name for feature in features]
        for name in names:
            if name in _RESERVED or names.count(name) > 1:
                raise ValueError(f"{edges.title}: a feature cannot be called {name!r}: the name is taken")
        source = id_sql(edges.source, table.columns[edges.source], source_type)
        target = id_sql(edges.target, table.columns[edges.target], target_type)
        values = [value for feature in features for value in feature.values]
        columns = [f"{source} AS s", f"{target} AS t", *(f"{v.sql} AS v{k}" for k, v in enumerate(values))]
        sql = f"SELECT {', '.join(columns)} FROM {{table}}"
        loaded = LoadedEdges(edges, "", features, source, target)
        if table.is_text or values:
            name = engine.new_name("loaded")
            engine.run(f"CREATE TABLE {name} AS {sql.format(table=table.sql())}", step, in_order=bool(values))
            loaded.sql = name
        return loaded

    def source(self, loaded: LoadedEdges) -> str:
        """SQL of the edges, for one query."""
        if loaded.sql:
            return loaded.sql
        return f"(SELECT {loaded.source_id} AS s, {loaded.target_id} AS t FROM {loaded.edges.table.sql()})"

    def write(
        self, loaded: LoadedEdges, numbered: NumberedEdges, source: Numbering, target: Numbering, step: Step
    ) -> dict[str, Any]:
        """Writes the edges of a type, and gives their entry of graph.json."""
        edges = loaded.edges
        folder = edge_folder(self._root, edges.type)
        wide = source.wide or target.wide
        writer = CsrWriter(folder, target.count, np.int64 if source.wide else np.int32, edges.deduplicate)
        arrays = [NpyWriter(folder / f"{file_name(f.name)}.npy", f.dtype, f.row_shape) for f in loaded.features]
        width = (16 if wide else 8) + sum(a.dtype.itemsize * int(np.prod(a.row_shape)) for a in arrays)
        expected = numbered.rows * (2 if edges.symmetrize else 1)
        done = 0
        for batch in self._engine.batches(
            self._sorted(loaded, numbered.table, target.count), max(1, BLOCK_BYTES // width), step
        ):
            taken = writer.write(batch.column("t").to_numpy(), batch.column("s").to_numpy())
            k = 0
            for feature, array in zip(loaded.features, arrays):
                columns = [v.array(batch.column(f"v{k + i}")) for i, v in enumerate(feature.values)]
                k += len(columns)
                array.write(feature.array(columns)[taken])
            done += batch.num_rows
            step.progress(done, max(expected, done), "edges")
        writer.close()
        for array in arrays:
            array.close()
        self._engine.run(f"DROP TABLE {numbered.table}")
        return {
            "type": list(edges.type),
            "count": writer.source.rows,
            "symmetric": True if edges.symmetrize else None,
            "indptr": array_entry(self._root, writer.indptr),
            "source": array_entry(self._root, writer.source),
            "features": {f.name: array_entry(self._root, a) for f, a in zip(loaded.features, arrays)},
        }

    def number(self, loaded: LoadedEdges, source: Numbering, target: Numbering, step: Step) -> NumberedEdges:
        """Puts numbers in place of ids, and leaves out bad rows or refuses them."""
        engine, edges = self._engine, loaded.edges
        dtype = "BIGINT" if source.wide or target.wide else "INTEGER"
        joins, ends = "", {}
        for end, numbering in (("s", source), ("t", target)):
            if numbering.dictionary is None:
                ends[end] = f"CASE WHEN e.{end} BETWEEN 0 AND {numbering.count - 1} THEN CAST(e.{end} AS {dtype}) END"
            else:
                joins += f" LEFT JOIN {numbering.dictionary} d{end} ON d{end}.{quoted(ID)} = e.{end}"
                ends[end] = f"CAST(d{end}.{quoted(NUMBER)} AS {dtype})"
        values = loaded.values
        order = ["e.rowid AS position"] if values else []
        columns = [*(f"{sql} AS {end}" for end, sql in ends.items()), *order, *(f"e.{v}" for v in values)]
        name = engine.new_name("numbered")
        engine.run(f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {self.source(loaded)} e{joins}", step)
        if loaded.sql:
            engine.run(f"DROP TABLE {loaded.sql}")
        wrong = ["s IS NULL", "t IS NULL"]
        flat = [value for feature in loaded.features for value in feature.values]
        for k, value in enumerate(flat):
            nan = value.dtype.startswith("float") and value.width is None
            wrong.append(f"v{k} IS NULL" + (f" OR isnan(v{k})" if nan else ""))
        condition = " OR ".join(wrong)
        rows, bad = engine.row(f"SELECT count(*), count(*) FILTER ({condition}) FROM {name}")
        check = self._check(loaded, source, target)
        skipped = refuse_or_count(engine, edges.table, edges.title, bad, check, self._skip)
        if bad:
            engine.run(f"DELETE FROM {name} WHERE {condition}")
        return NumberedEdges(name, rows - bad, skipped)

    def _check(self, loaded: LoadedEdges, source: Numbering, target: Numbering) -> Check:
        edges = loaded.edges
        cases, joins = [], ""
        for end, column, sql, numbering in (
            ("source", edges.source, loaded.source_id, source),
            ("target", edges.target, loaded.target_id, target),
        ):
            text = f"left(CAST({quoted(column)} AS VARCHAR), 40)"
            among = "nodes" if numbering.name == "_N" else f"nodes of type {numbering.name}"
            among = among.replace("'", "''")
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
        cases += [(value.bad, value.message) for feature in loaded.features for value in feature.values]
        return Check("CASE " + " ".join(f"WHEN {bad} THEN {message}" for bad, message in cases) + " END", joins)

    def _sorted(self, loaded: LoadedEdges, numbered: str, nodes: int) -> str:
        """SQL of all edges that are to be written, sorted by destination and source. An edge of the file comes before
        the reverse of a later one, so that of equal edges the first one stays."""
        edges, values = loaded.edges, loaded.values
        also = "".join(f", {v}" for v in values)
        position = (lambda side: f", 2 * position + {side} AS position") if values else (lambda side: "")
        parts = [f"SELECT s, t{position(0)}{also} FROM {numbered}"]
        if edges.symmetrize:
            parts.append(f"SELECT t, s{position(1)}{also} FROM {numbered} WHERE s <> t")
        if edges.self_loops:
            flat = [value for feature in loaded.features for value in feature.values]
            ones = "".join(f", {_ones(v.dtype, v.width)}" for v in flat)
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
