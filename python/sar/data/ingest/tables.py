"""Tables that DuckDB reads: files of Parquet, CSV and TSV, and arrays."""

from __future__ import annotations

import csv
import glob
import gzip
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from sar.errors import FormatError

from .arrays import BLOCK_BYTES, Rows
from .engine import Engine, import_extra, literal, quoted

POSITION = "sar position"  # a column: the row of a file, from 1, or the line of a text file

_TEXT = (".csv", ".tsv", ".txt")
_DELIMITERS = ",\t;| "
SQL_TYPES = {
    **{"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT"},
    **{"uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT"},
    **{"float32": "FLOAT", "float64": "DOUBLE"},
}
_READ_AS = {"bool": "uint8", "float16": "float32"}  # DuckDB has no half precision


class Table:
    """Rows with columns.

    :param columns: their types as DuckDB calls them
    :param read: gives what stands after FROM, for one query
    :param parts: tables that are read with this one
    """

    is_text = False  # is to be read once, and columns of VARCHAR may hold numbers
    position = "0"  # SQL of the number of a row in its file, from 0; 0 for all rows where that is not known

    def __init__(
        self, name: str, columns: dict[str, str], read: Callable[[], str] = str, parts: Sequence[Table] = ()
    ) -> None:
        self.name, self.columns, self.sql, self._parts = name, columns, read, parts

    def pieces(self) -> Iterator[tuple[str, str]]:
        """For messages: the name of each file, and SQL for its rows with the column ``POSITION``."""
        yield self.name, f"SELECT *, row_number() OVER () AS {quoted(POSITION)} FROM {self.sql()}"

    def line(self, file: str, position: int) -> int:
        """The line of a row of a piece, after the piece was read."""
        return position

    def rejected(self) -> tuple[int, list[tuple[str, int, str]]]:
        """Of the queries that ran so far: how many lines have no such columns, and the first: file, line, why."""
        found = [part.rejected() for part in self._parts]
        return sum(count for count, _ in found), [one for _, listed in found for one in listed]


def find_files(patterns: list[str], base: Path) -> list[str]:
    """The files that patterns name, sorted; those of a directory where one is named.

    :raises FileNotFoundError: a pattern without a file
    """
    found: list[str] = []
    for pattern in patterns:
        path = str(base / os.path.expanduser(pattern))
        names = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        if os.path.isdir(path):
            names = [
                name
                for name in sorted(glob.glob(os.path.join(glob.escape(path), "**", "*"), recursive=True))
                if _kind(name) is not None
            ]
        if not names:
            raise FileNotFoundError(f"there is no file {path}")
        found += [name for name in names if not os.path.isdir(name)]
    return found


def _kind(name: str) -> Optional[str]:
    """``parquet``, ``text`` or ``npy``, by the end of a name."""
    stem = name[:-3] if name.endswith(".gz") else name
    if stem.endswith(_TEXT):
        return "text"
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    return "npy" if name.endswith(".npy") else None


class FileTable(Table):
    """Files of Parquet, CSV or TSV (also ``.gz``), all with the same columns. Columns of text files are VARCHAR.

    :param header: whether the first line of a text file has the names of the columns; without it they are column0,
        column1, …
    :param delimiter: between the fields of a text file; None to look at its first line
    :raises sar.FormatError: a file is empty, or its columns are not those of the first
    """

    def __init__(
        self, engine: Engine, files: list[str], *, header: bool = True, delimiter: Optional[str] = None
    ) -> None:
        self._engine, self._files = engine, files
        name = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        super().__init__(name, {}, lambda: self._read(files, self._rejects))
        kinds = {name: _kind(name) for name in files}
        odd = next((name for name, kind in kinds.items() if kind not in ("text", "parquet")), None)
        if odd:
            raise FormatError(
                f"{odd}: expected a name that ends in .parquet, .csv, .tsv or .txt (or these and .gz)", odd
            )
        if len(set(kinds.values())) > 1:
            raise FormatError(f"{self.name}: Parquet and text files cannot be parts of one table", files[0])
        self.is_text = kinds[files[0]] == "text"
        self.position = "0" if self.is_text else "file_row_number"
        self._header = header
        self._rejects = engine.new_name("rejects")
        self._rejects_of_pieces = engine.new_name("rejects")
        if self.is_text:
            self._read_dialect(delimiter)
        else:
            described = engine.rows(f"DESCRIBE SELECT * EXCLUDE (file_row_number) FROM {self._read(files, '')}")
            self.columns = {str(row[0]): str(row[1]) for row in described}

    def _read_dialect(self, delimiter: Optional[str]) -> None:
        first: Optional[list[str]] = None
        self._delimiter = delimiter or ""
        self._comments: dict[str, int] = {}
        for name in self._files:
            line, self._comments[name] = _first_line(name)
            if not self._delimiter:
                tab = name.removesuffix(".gz").endswith(".tsv")
                self._delimiter = "\t" if tab else max(_DELIMITERS, key=line.count)
            fields = next(csv.reader([line], delimiter=self._delimiter))
            if first is None:
                first = fields
                if self._header and all(map(_is_number, fields)):
                    raise FormatError(
                        f"{name}: the first line, {line!r}, has numbers in place of names of columns: give --no-header "
                        "(in a schema: header: false), and the columns are column0, column1, …",
                        name,
                    )
                if self._header and len(set(fields)) < len(fields):
                    raise FormatError(f"{name}: two columns have one name in the first line, {line!r}", name)
            elif len(fields) != len(first) or (self._header and fields != first):
                raise FormatError(f"{name}: expected the columns {first} of {self._files[0]}, found {fields}", name)
        assert first is not None
        names = first if self._header else [f"column{i}" for i in range(len(first))]
        self.columns = dict.fromkeys(names, "VARCHAR")

    def _read(self, files: list[str], rejects: str) -> str:
        listed = "[" + ", ".join(map(literal, files)) + "]"
        if not self.is_text:
            return f"read_parquet({listed}, file_row_number = true)"
        columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in self.columns)
        comment = ", comment = '#'" if any(self._comments.values()) else ""
        return (
            f"read_csv({listed}, auto_detect = false, header = {str(self._header).lower()}, columns = {{{columns}}}, "
            f"delim = {literal(self._delimiter)}, quote = '\"', escape = '\"'{comment}, store_rejects = true, "
            f"rejects_table = '{rejects}', rejects_scan = '{rejects}_scans')"
        )

    def pieces(self) -> Iterator[tuple[str, str]]:
        for name in self._files:
            position = "file_row_number + 1"
            if self.is_text:
                position = f"row_number() OVER () + {int(self._header) + self._comments[name]}"
            yield name, f"SELECT *, {position} AS {quoted(POSITION)} FROM {self._read([name], self._rejects_of_pieces)}"

    def line(self, file: str, position: int) -> int:
        if self.is_text:
            # lines that have no such columns are not among the rows that were counted
            lines = f"SELECT DISTINCT line {{rejects}} WHERE file_path = {literal(file)} ORDER BY line"
            for (line,) in self._rejected(self._rejects_of_pieces, lines):
                if line > position:
                    break
                position += 1
        return position

    def rejected(self) -> tuple[int, list[tuple[str, int, str]]]:
        if not self.is_text:
            return 0, []
        count = self._rejected(self._rejects, "SELECT count(DISTINCT (file_path, line)) {rejects}")
        first = self._rejected(
            self._rejects,
            "SELECT file_path, line, any_value(error_message) {rejects} GROUP BY ALL ORDER BY ALL LIMIT 10",
        )
        listed = [(file, line, str(why).strip().splitlines()[0]) for file, line, why in first]
        return (count[0][0] if count else 0), listed

    def _rejected(self, rejects: str, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query of the lines that were rejected, which DuckDB keeps once it has met such a line."""
        known = f"SELECT count(*) FROM duckdb_tables() WHERE table_name = '{rejects}'"
        if not self._engine.row(known)[0]:
            return []
        joined = f"FROM {rejects} JOIN {rejects}_scans USING (scan_id, file_id)"
        return self._engine.rows(sql.format(rejects=joined))


def _first_line(name: str) -> tuple[str, int]:
    """The first line of a text file that is no comment, and how many come before it."""
    opener: Any = gzip.open if name.endswith(".gz") else open
    try:
        with opener(name, "rt", encoding="utf-8-sig", newline="") as file:
            comments = 0
            while line := file.readline(1 << 20):
                if not line.startswith("#"):
                    return line.rstrip("\r\n"), comments
                comments += 1
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise FormatError(f"{name}: expected text in UTF-8, found otherwise ({error})", name) from None
    raise FormatError(f"{name}: the file is empty", name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def array_table(engine: Engine, name: str, columns: Mapping[str, Rows]) -> Table:
    """Arrays side by side, as columns. An array ``[rows, n]`` is a column of fixed-size lists.

    :raises ValueError: arrays with different numbers of rows, or of more than two dimensions
    """
    lengths = {rows.name: len(rows) for rows in columns.values()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {n:,}" for name, n in lengths.items())
        raise ValueError(f"{name}: arrays of one table have the same number of rows, but {told}")
    length = next(iter(lengths.values()))
    width = sum(r.dtype.itemsize * (r.shape[1] if len(r.shape) > 1 else 1) for r in columns.values())
    step = max(1, BLOCK_BYTES // width)

    def read() -> str:
        pa = import_extra("pyarrow")

        def batch(begin: int) -> Any:
            blocks = [rows.block(begin, min(begin + step, length)) for rows in columns.values()]
            return pa.RecordBatch.from_arrays([_arrow(pa, block) for block in blocks], list(columns))

        batches = (batch(begin) for begin in range(0, length, step))
        return engine.register("arrays", pa.RecordBatchReader.from_batches(batch(0).schema, batches))

    return Table(name, {key: _sql_type(rows) for key, rows in columns.items()}, read)


def _read_as(dtype: Any) -> str:
    return _READ_AS.get(dtype.name, dtype.name)


def _sql_type(rows: Rows) -> str:
    base = SQL_TYPES[_read_as(rows.dtype)]
    return base if len(rows.shape) == 1 else f"{base}[{rows.shape[1]}]"


def _arrow(pa: Any, block: Any) -> Any:
    flat = pa.array(block.reshape(-1).astype(_read_as(block.dtype), copy=False))
    return flat if block.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, block.shape[1])


def pair_table(engine: Engine, pairs: Rows, more: Optional[Mapping[str, Rows]] = None) -> Table:
    """Edges as an array: the columns source and target of ``[2, edges]`` or ``[edges, 2]``, and those of ``more``.

    :raises ValueError: another shape, or numbers that are no integers
    """
    if len(pairs.shape) != 2 or 2 not in pairs.shape or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"{pairs.name}: expected edges as integers [2, edges] or [edges, 2], found {pairs.dtype} "
            f"{list(pairs.shape)}"
        )
    upright = pairs if pairs.shape[0] != 2 else pairs.view(np.transpose)
    ends = {"source": upright.view(lambda a: a[:, 0]), "target": upright.view(lambda a: a[:, 1])}
    return array_table(engine, pairs.name, {**ends, **(more or {})})


def side_by_side(left: Optional[Table], right: Table, prefix: str) -> tuple[Table, list[str]]:
    """Two tables whose rows belong together, the first with the first. Where one is shorter, its columns are NULL.

    :param prefix: put before the names of columns of ``right``, unless it stays alone
    :returns: the table, and what it calls the columns of ``right``
    """
    if left is None:
        return right, list(right.columns)
    names = {name: prefix + name for name in right.columns}
    columns = {**left.columns, **{names[name]: given for name, given in right.columns.items()}}
    if len(columns) < len(left.columns) + len(right.columns):
        raise ValueError(f"{left.name} and {right.name} have columns of the same name")
    renamed = ", ".join(f"{quoted(name)} AS {quoted(names[name])}" for name in names)
    read = lambda: f"(SELECT * FROM {left.sql()} POSITIONAL JOIN (SELECT {renamed} FROM {right.sql()}))"  # noqa: E731
    found = Table(left.name, columns, read, (left, right))
    found.is_text = True  # is read once, in order
    return found, list(names.values())
