"""Labels and splits of nodes: numbers, names of classes, and what they become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from .engine import Engine, import_extra, literal, quoted
from .tables import Table
from .values import INTEGERS, sample_of

_MOST_CLASSES = 100_000
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}


@dataclass(frozen=True)
class Labels:
    """A column of labels. Classes become int64, -1 for no label; other numbers float32, NaN for no label."""

    sql: str
    dtype: str
    bad: str  # SQL: whether the label of a row cannot be taken
    message: str  # SQL: why
    classes: Optional[list[str]] = None  # names, in the order of their numbers
    names = ("labels",)

    def arrays(self, column: Any) -> dict[str, np.ndarray]:
        """``labels`` ``[rows]`` of a column of a record batch."""
        pa, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
        if self.classes is not None:
            column = compute.index_in(column, value_set=pa.array(self.classes, column.type))
        missing = -1 if self.dtype == "int64" else float("nan")
        filled = compute.fill_null(column, missing).to_numpy(zero_copy_only=False)
        return {"labels": np.asarray(filled, self.dtype)}


def labels_of(engine: Engine, table: Table, column: str, unlabelled: Optional[str]) -> Labels:
    """Looks at a column of labels.

    :raises ValueError: it holds neither numbers nor a moderate number of names
    """
    name, given = quoted(column), table.columns[column]
    present = f"nullif({name}, {literal(unlabelled)})" if unlabelled is not None and given == "VARCHAR" else name
    shown = f"left(CAST({name} AS VARCHAR), 40)"
    if given == "VARCHAR":
        numeric = f"SELECT bool_and(TRY_CAST(c AS DOUBLE) IS NOT NULL) FROM {sample_of(table, present)}"
        if not engine.row(numeric)[0]:
            return _named(engine, table, column, present)
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
    return Labels(sql, "int64" if whole else "float32", f"({nan} OR {negative} OR {no_number})", message)


def _named(engine: Engine, table: Table, column: str, present: str) -> Labels:
    names = f"SELECT DISTINCT {present} AS c FROM {table.sql()} WHERE {present} IS NOT NULL"
    rows = engine.rows(f"{names} ORDER BY c LIMIT {_MOST_CLASSES}")
    if len(rows) == _MOST_CLASSES:
        raise ValueError(f"{table.name}: column {column!r} has {_MOST_CLASSES:,} names or more: is it the label?")
    return Labels(present, "int64", "false", "''", [row[0] for row in rows])


@dataclass(frozen=True)
class Splits:
    """A column that names the split of a node: train, val (or valid, validation, dev), test, or nothing."""

    sql: str
    classes = None
    names = ("train_mask", "val_mask", "test_mask")

    @property
    def bad(self) -> str:
        """SQL: whether a row names another split."""
        # not IN: DuckDB makes a join of a long list, and a join loses the order of rows
        return f"({self.sql} IS NOT NULL AND NOT regexp_full_match({self.sql}, '{'|'.join(SPLITS)}'))"

    @property
    def message(self) -> str:
        """SQL: what is wrong with such a row."""
        return f"'the split is not train, val or test: ' || left({self.sql}, 40)"

    def arrays(self, column: Any) -> dict[str, np.ndarray]:
        """``train_mask``, ``val_mask`` and ``test_mask``, uint8 ``[rows]``."""
        pa, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
        found = {}
        for split in ("train", "val", "test"):
            names = pa.array([name for name, meant in SPLITS.items() if meant == split], column.type)
            found[f"{split}_mask"] = compute.is_in(column, value_set=names).to_numpy(zero_copy_only=False).view("uint8")
        return found


def splits_of(column: str) -> Splits:
    """How a column of splits is read."""
    return Splits(f"nullif(lower(trim(CAST({quoted(column)} AS VARCHAR))), '')")
