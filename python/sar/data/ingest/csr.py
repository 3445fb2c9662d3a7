"""Writes edges that come sorted by destination and source as CSR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .arrays import NpyWriter

_ROWS = 1 << 20  # of indptr, at once


class CsrWriter:
    """Writes ``indptr.npy`` and ``source.npy``. Needs memory for a block of edges, however many nodes there are.

    :param rows: number of destinations
    :param dtype: of sources
    :param distinct: whether an edge that repeats the one before it is left out
    """

    def __init__(self, folder: Path, rows: int, dtype: Any, distinct: bool) -> None:
        self.indptr = NpyWriter(folder / "indptr.npy", np.int64)
        self.source = NpyWriter(folder / "source.npy", dtype)
        self._rows = rows
        self._begun = 0  # entries of indptr that are written
        self._distinct = distinct
        self._last: tuple[int, int] = (-1, -1)

    def write(self, target: np.ndarray, source: np.ndarray) -> Any:
        """Appends edges, and gives what selects those that were taken from arrays beside them."""
        if not len(target):
            return slice(None)
        taken: Any = slice(None)
        if self._distinct:
            taken = np.empty(len(target), bool)
            taken[0] = (int(target[0]), int(source[0])) != self._last
            np.not_equal(target[1:], target[:-1], out=taken[1:])
            taken[1:] |= source[1:] != source[:-1]
            self._last = (int(target[-1]), int(source[-1]))
            if taken.all():
                taken = slice(None)
        target = target[taken]
        if len(target):
            self._begin_rows(int(target[-1]) + 1, target)
            self.source.write(source[taken])
        return taken

    def _begin_rows(self, end: int, target: np.ndarray) -> None:
        """Writes where rows up to ``end`` - 1 begin. ``target`` has the destinations of the edges to be appended."""
        for low in range(self._begun, end, _ROWS):
            rows = np.arange(low, min(low + _ROWS, end), dtype=target.dtype)
            self.indptr.write(self.source.rows + np.searchsorted(target, rows))
        self._begun = max(self._begun, end)

    def close(self) -> None:
        """Writes what is left, and the headers."""
        self._begin_rows(self._rows + 1, np.empty(0, np.int64))
        self.indptr.close()
        self.source.close()
