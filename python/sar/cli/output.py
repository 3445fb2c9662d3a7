"""Shared by the subcommands: failures, options, tables, progress."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sar.units import parse_size


class Failure(Exception):
    """Ends the command with a message and an exit code, without a traceback."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def add_outside_paths(parser: argparse.ArgumentParser) -> None:
    """The switch of what opens partitions."""
    parser.add_argument(
        "--allow-outside-paths",
        action="store_true",
        help="let the description name files outside its own directory (sar.Config.allow_outside_paths)",
    )


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> str:
    """Columns aligned on their widest cell: the first ``left`` to the left, the others to the right."""
    cells = [[str(c) for c in row] for row in [header, *rows]]
    width = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, width))).rstrip()

    rule = "  ".join("-" * w for w in width)
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def size_argument(text: str) -> int:
    """The type of options that take a number of bytes."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class Stage:
    """One long step, shown on stderr. On a terminal the line is rewritten as the step progresses. In a log, a long step
    writes a line every ``_LOG_EVERY`` seconds, with its progress or, if that is unknown, the elapsed time."""

    _TERMINAL_EVERY = 0.1
    _LOG_EVERY = 10.0

    def __init__(self, what: str) -> None:
        self.what = what
        self.note = ""
        self._terminal = sys.stderr.isatty()
        self._begin = self._shown = time.monotonic()
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def _beat(self) -> None:
        every = 1.0 if self._terminal else self._LOG_EVERY
        while not self._over.wait(every):
            now = time.monotonic()
            if now - self._shown >= every:
                self._write(f"{self.what} … {now - self._begin:.0f} s", end="" if self._terminal else "\n")

    def announce(self) -> None:
        """Also logs the start of the step, for steps that hold the interpreter and cannot report progress."""
        if not self._terminal:
            self._write(f"{self.what} …", end="\n")

    def end(self) -> None:
        """Stops reporting progress."""
        self._over.set()
        self._beating.join()

    def progress(self, done: int, total: int, unit: str = "") -> None:
        """Says how far the step is, and how long it will take at this rate. Cheap enough to be called often.

        :param total: 0 where it is not known
        :param unit: what is counted, to show the rate: ``"rows"``
        """
        now = time.monotonic()
        if now - self._shown < (self._TERMINAL_EVERY if self._terminal else self._LOG_EVERY):
            return
        self._shown = now
        passed = now - self._begin
        told = f"{100 * done // total}%" if total > 0 else f"{done:,}"
        if unit and passed > 0:
            told += f", {done / passed:,.0f} {unit}/s"
        if total > 0 and done > 0 and passed > 2:
            told += f", {passed * (total - done) / done:.0f} s left"
        self._write(f"{self.what} … {told}", end="" if self._terminal else "\n")

    def _write(self, text: str, end: str) -> None:
        sys.stderr.write((f"\r{text}\x1b[K" if self._terminal else text) + end)
        sys.stderr.flush()


@contextmanager
def stage(what: str) -> Iterator[Stage]:
    """Announces a step, and prints its duration and the stage's ``note`` when it ends."""
    current = Stage(what)
    if current._terminal:
        current._write(f"{what} …", end="")
    try:
        try:
            yield current
        finally:
            current.end()
    except BaseException:
        if current._terminal:
            sys.stderr.write("\n")
        raise
    note = f", {current.note}" if current.note else ""
    current._write(f"{what}: {time.monotonic() - current._begin:.1f} s{note}", end="\n")
