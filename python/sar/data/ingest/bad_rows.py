"""Rows that cannot be taken: counted, the first of them shown with file and line, and refused unless told otherwise."""

from __future__ import annotations

from typing import NamedTuple

from .engine import Engine, quoted
from .tables import POSITION, Table

_SHOWN = 10


class BadRowsError(ValueError):
    """A table has rows that cannot be taken. ``count`` is their number."""

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.count = count


class Check(NamedTuple):
    """How the rows of a table are looked at: SQL of whether something is wrong with a row and of what to say then, the
    first that applies, and what has to be joined to the table, which is called ``t``, for that."""

    cases: list[tuple[str, str]]
    joins: str = ""

    @property
    def wrong(self) -> str:
        """SQL of what is wrong with a row, NULL for nothing."""
        cases = " ".join(f"WHEN {bad} THEN {message}" for bad, message in self.cases)
        return f"CASE {cases} END" if cases else "NULL"


def refuse_or_count(engine: Engine, table: Table, title: str, bad: int, check: Check, skip: bool) -> int:
    """The number of bad rows, those included that have no such columns at all.

    :param title: what the rows are, such as "edges"
    :param bad: bad rows that were counted
    :param skip: whether they are left out
    :raises BadRowsError: there are bad rows, and they are not left out
    """
    torn, listed = table.rejected()
    total = bad + torn
    if total == 0 or skip:
        return total
    shown = {(file, line): why for file, line, why in listed}
    # also for lines that are torn: DuckDB counts those whose numbers it cannot read among them
    shown.update({(file, line): why for file, line, why in _first(engine, table, check)})
    unit = "line" if table.is_text else "row"
    lines = [f"  {file}, {unit} {line}: {why}" for (file, line), why in sorted(shown.items())[:_SHOWN]]
    if total > len(lines):
        lines.append(f"  … and {total - len(lines):,} more")
    rows = "1 bad row" if total == 1 else f"{total:,} bad rows"
    raise BadRowsError(
        f"{title}: {rows}:\n" + "\n".join(lines) + "\nMend the file, or give --skip-bad-rows to leave such rows out.",
        total,
    )


def _first(engine: Engine, table: Table, check: Check) -> list[tuple[str, int, str]]:
    found: list[tuple[str, int, str]] = []
    for file, rows in table.pieces():
        if len(found) >= _SHOWN:
            break
        sql = f"SELECT t.{quoted(POSITION)} AS line, {check.wrong} AS wrong FROM ({rows}) t {check.joins}"
        sql = f"SELECT * FROM ({sql}) WHERE wrong IS NOT NULL ORDER BY line LIMIT {_SHOWN - len(found)}"
        listed = engine.rows(sql, in_order=True)
        found += [(file, table.line(file, int(line)), str(why)) for line, why in listed]
    return found
