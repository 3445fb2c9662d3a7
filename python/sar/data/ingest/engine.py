"""DuckDB, which reads tables, joins and sorts within a budget of memory, and spills to disk what is beyond it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from sar.errors import BudgetError
from sar.extras import need

from .progress import Step

_ASK_EVERY = 0.5  # seconds between two looks at DuckDB's progress
_OWN_BYTES = 256 << 20  # of the budget: record batches on their way, and what DuckDB does not count
_LEAST_BYTES = 384 << 20


def import_extra(name: str) -> Any:
    """A library of the extra ``sar-gnn[ingest]``.

    :raises ImportError: it is not installed
    """
    return need(name, "ingest", "reading tables")


class Engine(contextlib.AbstractContextManager["Engine"]):
    """One connection to DuckDB with a database in a folder of its own. Use it in a ``with`` statement.

    :param memory: bytes for DuckDB and for what Python holds of its results
    :param threads: None for as many as there are cores
    """

    def __init__(self, folder: Path, memory: int, threads: Optional[int] = None) -> None:
        if memory < _LEAST_BYTES:
            raise BudgetError(f"--memory: ingest needs {_LEAST_BYTES >> 20} MiB, got {memory >> 20} MiB", _LEAST_BYTES)
        self._duckdb = import_extra("duckdb")
        self.memory = memory
        settings = {
            "memory_limit": f"{(memory - _OWN_BYTES) >> 20}MiB",
            "temp_directory": str(folder / "spill"),
            "preserve_insertion_order": False,
            "allow_unsigned_extensions": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        if threads:
            settings["threads"] = threads
        self._connection = self._duckdb.connect(str(folder / "tables.duckdb"), config=settings)
        self._connection.execute("SET enable_progress_bar = false")  # which writes to standard output
        # what sorts and hash tables take: with all of the memory, a sort that just does not fit finds out too late
        self._connection.execute(f"SET operator_memory_limit = '{(memory - _OWN_BYTES) >> 21}MiB'")
        self._names = 0

    def __exit__(self, *unused: object) -> None:
        self._connection.close()

    def new_name(self, stem: str) -> str:
        """A name for a table or a view that no other has."""
        self._names += 1
        return f"{stem}_{self._names}"

    def register(self, stem: str, batches: Any) -> str:
        """Makes a reader of record batches known to DuckDB, for one query, and gives its name."""
        name = self.new_name(stem)
        self._connection.register(name, batches)
        return name

    def run(self, sql: str, step: Optional[Step] = None, *, in_order: bool = False) -> None:
        """Runs a statement. With ``in_order``, rows keep the order in which they are read, except through a join."""
        with self._errors(), self._order(in_order), self._watched(step):
            self._connection.execute(sql)

    def rows(self, sql: str, *, in_order: bool = False) -> list[tuple[Any, ...]]:
        """The rows of a small result."""
        with self._errors(), self._order(in_order):
            return self._connection.execute(sql).fetchall()

    def row(self, sql: str) -> tuple[Any, ...]:
        """The one row of a result."""
        return self.rows(sql)[0]

    def batches(self, sql: str, rows: int, step: Optional[Step] = None, *, in_order: bool = False) -> Iterator[Any]:
        """The result as record batches of about ``rows`` rows. Nothing else may run until they are all read."""
        with self._errors(), self._order(in_order):
            with self._watched(step):
                reader = self._connection.sql(sql).to_arrow_reader(rows)
            yield from reader

    @contextlib.contextmanager
    def _order(self, keep: bool) -> Iterator[None]:
        if not keep:
            yield
            return
        self._connection.execute("SET preserve_insertion_order = true")
        try:
            yield
        finally:
            with contextlib.suppress(self._duckdb.Error):
                self._connection.execute("SET preserve_insertion_order = false")

    @contextlib.contextmanager
    def _watched(self, step: Optional[Step]) -> Iterator[None]:
        """Tells the step how far DuckDB is."""
        if step is None:
            yield
            return
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_ASK_EVERY):
                percent = self._connection.query_progress()
                if percent > 0:
                    step.progress(int(100 * percent), 10000)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """DuckDB's exceptions as Python's and ours."""
        try:
            yield
        except self._duckdb.OutOfMemoryException as error:
            raise BudgetError(
                f"{self.memory >> 20} MiB are not enough for this step: give more as --memory, or less as --threads, "
                f"or room on disk as --scratch ({_first_line(error)})"
            ) from None
        except (self._duckdb.IOException, self._duckdb.HTTPException) as error:
            raise OSError(_first_line(error)) from None
        except self._duckdb.Error as error:
            raise ValueError(_first_line(error)) from None
        except RuntimeError as error:
            if str(error) == "Query interrupted":  # what DuckDB makes of Ctrl-C
                raise KeyboardInterrupt from None
            raise


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"
