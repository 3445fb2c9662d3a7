"""Columns of numbers: how SQL reads them, and how record batches of them become arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Optional

import numpy as np

from .engine import Engine, literal, quoted
from .tables import SQL_TYPES, Table

_SAMPLE = 10_000  # rows of a text file that tell what its columns hold
_DTYPES = {"BOOLEAN": "uint8", **{name: dtype for dtype, name in SQL_TYPES.items()}}
_WHOLE = "regexp_full_match(trim(c), '-?(0|[1-9][0-9]*)') AND TRY_CAST(c AS BIGINT) IS NOT NULL"
INTEGERS = tuple(name for dtype, name in SQL_TYPES.items() if "int" in dtype)


@dataclass(frozen=True)
class Value:
    """A column of numbers, or of lists of ``width`` numbers. ``sql`` is NULL where a row has none."""

    column: str
    sql: str
    dtype: str
    width: Optional[int] = None

    @property
    def bad(self) -> str:
        """SQL: whether a row is without a value."""
        nan = f" OR isnan({self.sql})" if self.dtype.startswith("float") and self.width is None else ""
        return f"({self.sql} IS NULL{nan})"

    @property
    def message(self) -> str:
        """SQL: what is wrong with such a row."""
        text = f"CAST({quoted(self.column)} AS VARCHAR)"
        expected = "a number" if self.width is None else f"a list of {self.width} numbers"
        missing = literal(f"{self.column} is missing")
        wrong = f"{literal(self.column + ' is not ' + expected + ': ')} || left({text}, 40)"
        return f"CASE WHEN {quoted(self.column)} IS NULL THEN {missing} ELSE {wrong} END"

    def array(self, column: Any) -> np.ndarray:
        """``[rows]`` or ``[rows, width]`` of a column of a record batch without bad rows."""
        if self.width is None:
            return np.asarray(column.to_numpy(zero_copy_only=False), self.dtype)
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat, self.dtype).reshape(-1, self.width)


@dataclass(frozen=True)
class Feature:
    """What becomes one array: ``[rows, width]`` of several values, or the rows of one value as they are."""

    name: str
    values: list[Value]
    dtype: str
    row_shape: tuple[int, ...]

    def array(self, columns: list[np.ndarray]) -> np.ndarray:
        """The rows of a block, out of the arrays of its values."""
        if len(columns) == 1:
            return columns[0].reshape(-1, *self.row_shape)
        return np.column_stack(columns).astype(self.dtype, copy=False)


def arrays_of(features: Sequence[Feature], batch: Any) -> Iterator[np.ndarray]:
    """The rows of each feature in a record batch, whose columns v0, v1, … are the values of all of them."""
    columns = (batch.column(f"v{k}") for k in count())
    for feature in features:
        yield feature.array([value.array(next(columns)) for value in feature.values])


def features_of(engine: Engine, table: Table, matrices: dict[str, list[str]], columns: dict[str, str]) -> list[Feature]:
    """The features of a table: float32 matrices, and columns with a dtype of their own.

    :raises ValueError: a column holds no numbers
    """
    found = []
    for name, listed in matrices.items():
        values = _wide(engine, table, listed) or [value_of(engine, table, column, "float32") for column in listed]
        found.append(Feature(name, values, "float32", (sum(v.width or 1 for v in values),)))
    for name, column in columns.items():
        value = value_of(engine, table, column)
        found.append(Feature(name, [value], value.dtype, () if value.width is None else (value.width,)))
    return found


def _wide(engine: Engine, table: Table, columns: list[str]) -> list[Value]:
    """The columns of a wide table of text, which one look at its first rows finds to be no lists; else nothing."""
    if len(columns) < 2 or not table.is_text or any(table.columns[c] != "VARCHAR" for c in columns):
        return []
    rows = engine.rows(f"SELECT {', '.join(map(quoted, columns))} FROM {table.sql()} LIMIT 100")
    if not rows or any(text is None or text.lstrip().startswith("[") for text in rows[0]):
        return []
    return [Value(c, f"TRY_CAST({quoted(c)} AS FLOAT)", "float32") for c in columns]


def value_of(engine: Engine, table: Table, column: str, dtype: Optional[str] = None) -> Value:
    """A column as numbers of a dtype; None for that which the column has.

    :raises ValueError: it holds no numbers
    """
    name, given = quoted(column), table.columns[column]
    base, bracket, width = given.partition("[")
    if given == "VARCHAR":
        first, whole = engine.row(f"SELECT any_value(c), bool_and({_WHOLE}) FROM {sample_of(table, name)}")
        if first is not None and first.lstrip().startswith("["):
            base, bracket, width, name = "FLOAT", "[", "]", f"TRY_CAST({name} AS FLOAT[])"
        else:
            chosen = dtype or ("int64" if whole else "float32")
            return Value(column, f"TRY_CAST({name} AS {SQL_TYPES[chosen]})", chosen)
    base = re.sub(r"^(DECIMAL\(.*\)|HUGEINT)$", "DOUBLE", base)
    if base not in _DTYPES or width.count("]") > 1:
        raise ValueError(
            f"{table.name}: column {column!r} holds {given}; a feature is made of numbers, or of lists of numbers"
        )
    chosen = dtype or _DTYPES[base]
    if not bracket:
        return Value(column, f"TRY_CAST({name} AS {SQL_TYPES[chosen]})", chosen)
    length = width.rstrip("]")
    if not length:
        rows = engine.rows(f"SELECT len({name}) FROM {table.sql()} WHERE {quoted(column)} IS NOT NULL LIMIT 1")
        length = str(rows[0][0] or 1) if rows else "1"
    return Value(column, f"TRY_CAST({name} AS {SQL_TYPES[chosen]}[{length}])", chosen, int(length))


def holds_integers(engine: Engine, table: Table, column: str) -> bool:
    """Whether the first rows of a column of text are all integers, written as integers are."""
    return bool(engine.row(f"SELECT bool_and({_WHOLE}) FROM {sample_of(table, quoted(column))}")[0])


def sample_of(table: Table, value: str) -> str:
    """SQL of the first rows that have a value, in the column c."""
    return f"(SELECT {value} AS c FROM {table.sql()} WHERE {value} IS NOT NULL LIMIT {_SAMPLE})"


def id_sql(column: str, given: str, wanted: str) -> str:
    """SQL that makes an id of the type ``wanted`` of a column of the type ``given``. NULL where it is none: numbers in
    text that are written otherwise, such as 007, would make one id of two."""
    name = quoted(column)
    if wanted == "VARCHAR":
        return name if given == "VARCHAR" else f"CAST({name} AS VARCHAR)"
    if given == "VARCHAR":
        number = f"TRY_CAST(trim({name}) AS {wanted})"
        return f"CASE WHEN CAST({number} AS VARCHAR) = trim({name}) THEN {number} END"
    return name if given == wanted else f"TRY_CAST({name} AS {wanted})"
