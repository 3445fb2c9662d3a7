"""A line on rank 0's terminal that tells how far training is."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections import deque
from typing import Any, Deque, Mapping, Optional

from .samples import flattened

VARIABLE = "SAR_PROGRESS"
"""0: there is no line. 1: there is one though stderr is no terminal; ``sar launch`` sets it where its own is one."""

_EVERY = 0.1
_RECENT = 20
_SHOWN = 3
_PREFIX = 8  # of sar launch: the rank


class ProgressLine:
    """Rewrites one line of stderr: ``epoch 37/200  loss 0.2779  0.31 s an epoch, 0:51 left``."""

    def __init__(self) -> None:
        self._took: Deque[float] = deque(maxlen=_RECENT)
        self._written_at = float("-inf")
        self._open = False

    def write(self, record: Mapping[str, Any], of: int) -> None:
        """Shows an epoch.

        :param of: the number of the last epoch
        """
        self._took.append(record["took"])
        now = time.monotonic()
        last = record["epoch"] >= of
        if now - self._written_at < _EVERY and not last:
            return
        self._written_at = now
        each = statistics.median(self._took)  # the first epoch has the start in it
        values = [pair for key, value in record["values"].items() for pair in flattened(key, value)]
        told = [f"{name} {value:.4g}" for name, value in values]
        rate = f"{each:.2f} s an epoch" if each >= 0.1 else f"{1000 * each:.0f} ms an epoch"
        left = "" if last else f", {_clock(each * (of - record['epoch']))} left"
        text = "  ".join([f"epoch {record['epoch']}/{of}", *told[:_SHOWN], rate + left])
        columns = shutil.get_terminal_size().columns - _PREFIX
        sys.stderr.write(f"\r{text[:columns]}\x1b[K")  # a line that wraps cannot be rewritten
        self._open = True
        if last:
            self.close()
        sys.stderr.flush()

    def close(self) -> None:
        """Ends the line; harmless when called twice."""
        if self._open:
            self._open = False
            sys.stderr.write("\n")
            sys.stderr.flush()


def progress_line(rank: int) -> Optional[ProgressLine]:
    """The line, on rank 0 where somebody sees it."""
    wanted = os.environ.get(VARIABLE, "").strip()
    if rank or wanted == "0" or not (wanted == "1" or sys.stderr.isatty()):
        return None
    return ProgressLine()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
