"""Labels and splits of nodes: numbers, names of classes, and what they become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import numpy as np

from .engine import Engine, literal, quoted
from .tables import SQL_TYPES, Table
from .values import INTEGERS, Feature, Value, sample_of

_MOST_CLASSES = 100_000
# not IN, of their words: DuckDB makes a join of a long list, and a join loses the order of rows
_SPLITS = {"train": "train", "val": "val|valid|validation|dev", "test": "test"}


@dataclass(frozen=True)
class Mark:
    """What a column of labels or of splits becomes: features that have a value where the column has none."""

    features: list[Feature]
    bad: str  # SQL: whether a row cannot be taken
    message: str  # SQL: why
    classes: Optional[list[str]] = None  # names of labels, in the order of their numbers


def labels_of(engine: Engine, table: Table, column: str, unlabelled: Optional[str]) -> Mark:
    """Looks at a column of labels. Classes become int64, -1 for no label; other numbers float32, NaN for no label.

    :raises ValueError: it holds neither numbers nor a moderate number of names
    """
    name, given = quoted(column), table.columns[column]
    present = f"nullif({name}, {literal(unlabelled)})" if unlabelled is not None and given == "VARCHAR" else name
    shown = f"left(CAST({name} AS VARCHAR), 40)"
    if given == "VARCHAR":
        numeric = f"SELECT bool_and(TRY_CAST(c AS DOUBLE) IS NOT NULL) FROM {sample_of(table, present)}"
        if not engine.row(numeric)[0]:
            sql, classes = _named(engine, table, column, present)
            return Mark([_labels(column, sql, "int64")], "false", "''", classes)
    whole = given in INTEGERS or given == "BOOLEAN"
    number = f"CAST({name} AS BIGINT)" if whole else f"TRY_CAST({present} AS DOUBLE)"
    if unlabelled is not None and given != "VARCHAR":
        try:
            marker = float(unlabelled)
        except ValueError:
            raise ValueError(
                f"{table.name}: column {column!r} holds {given}, so --unlabelled {unlabelled!r} has to be a number"
            ) from None
        test = f"isnan({number})" if np.isnan(marker) else f"{number} = {marker!r}"
        number = f"CASE WHEN NOT ({test}) THEN {number} END"
    if not whole:
        counted = f"SELECT bool_and({number} = floor({number})) FROM {table.sql()} WHERE NOT isnan({number})"
        whole = engine.row(counted)[0] is not False
    nan = f"coalesce(isnan(CAST({number} AS DOUBLE)), false)"
    no_number = f"({present} IS NOT NULL AND {number} IS NULL)" if given == "VARCHAR" else "false"
    negative = f"coalesce({number} < -1, false)" if whole else "false"
    message = (
        f"CASE WHEN {nan} THEN 'the label is NaN; where that means that there is none: --unlabelled nan' "
        f"WHEN {negative} THEN 'the label is negative: ' || {shown} "
        f"ELSE 'the label is not a number, as those before it: ' || {shown} END"
    )
    sql = f"CASE WHEN NOT {nan} THEN CAST({number} AS BIGINT) END" if whole else f"CAST({number} AS FLOAT)"
    feature = _labels(column, sql, "int64" if whole else "float32")
    return Mark([feature], f"({nan} OR {negative} OR {no_number})", message)


def _labels(column: str, sql: str, dtype: str) -> Feature:
    missing = "-1" if dtype == "int64" else "'nan'"
    value = Value(column, f"coalesce({sql}, CAST({missing} AS {SQL_TYPES[dtype]}))", dtype)
    return Feature("labels", [value], dtype, ())


def _named(engine: Engine, table: Table, column: str, present: str) -> tuple[str, list[str]]:
    """SQL of the numbers of names, and the names, in the order of their numbers."""
    names = f"SELECT DISTINCT {present} AS c FROM {table.sql()} WHERE {present} IS NOT NULL"
    classes = [row[0] for row in engine.rows(f"{names} ORDER BY c LIMIT {_MOST_CLASSES}")]
    if len(classes) == _MOST_CLASSES:
        raise ValueError(f"{table.name}: column {column!r} has {_MOST_CLASSES:,} names or more: is it the label?")
    kind = engine.new_name("classes")
    engine.run(f"CREATE TYPE {kind} AS ENUM ({', '.join(map(literal, classes))})")
    return f"CAST(enum_code(CAST({present} AS {kind})) AS BIGINT)", classes


def splits_of(column: str) -> Mark:
    """How a column is read that names the split of a node: train, val (or valid, validation, dev), test, or nothing. It
    becomes ``train_mask``, ``val_mask`` and ``test_mask``, uint8 ``[rows]``."""
    name = f"nullif(lower(trim(CAST({quoted(column)} AS VARCHAR))), '')"
    features = []
    for split, words in _SPLITS.items():
        sql = f"CAST(coalesce(regexp_full_match({name}, '{words}'), false) AS UTINYINT)"
        features.append(Feature(f"{split}_mask", [Value(column, sql, "uint8")], "uint8", ()))
    bad = f"({name} IS NOT NULL AND NOT regexp_full_match({name}, '{'|'.join(_SPLITS.values())}'))"
    return Mark(features, bad, f"'the split is not train, val or test: ' || left({name}, 40)")
