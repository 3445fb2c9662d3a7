"""What workers print: handed on line by line, behind their rank, and kept in a file for each."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from .workers import Worker

_LONGEST_LINE = 1 << 16
_CLEAR = b"\x1b[K"  # to the end of the line
# How torch.distributed begins the lines of a traceback that it repeats.
_TORCH_PREFIX = re.compile(rb"^\[rank\d+\]: ?")


class Progress:
    """The last line of the terminal, which a worker rewrites by carriage returns. Others appear above it."""

    def __init__(self) -> None:
        self.text = b""

    def show(self, text: bytes) -> None:
        """Writes it; b"": takes it away."""
        if text or self.text:
            sys.stderr.buffer.write(b"\r" + text + _CLEAR)
            sys.stderr.buffer.flush()
        self.text = text

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Takes it away while other lines are written."""
        text = self.text
        self.show(b"")
        yield
        self.show(text)


class Lines:
    """One stream, handed on as whole lines with a prefix."""

    def __init__(
        self,
        target: IO[bytes],
        prefix: bytes,
        keep: deque[bytes] | None = None,
        log: IO[bytes] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """
        :param keep: gets the lines, too
        :param log: the same
        :param progress: what stands below the lines
        """
        self.target, self.prefix, self.keep, self.log = target, prefix, keep, log
        self.progress = progress or Progress()
        self.rewrites = False
        """Whether this stream writes the progress."""
        self.partial = b""

    def feed(self, data: bytes) -> None:
        """Takes what has come, b"" at the end of the stream."""
        whole, newline, self.partial = (self.partial + data).rpartition(b"\n")
        if len(self.partial) > _LONGEST_LINE or (self.partial and not data):
            whole, newline, self.partial = whole + newline + self.partial, b"\n", b""
        if self.rewrites:
            state = self.partial.rsplit(b"\r", 1)
            self.progress.show(self.prefix + state[1].replace(_CLEAR, b"") if len(state) == 2 else b"")
        if newline:
            with self.progress.away():
                self._emit(whole.split(b"\n"))

    def _emit(self, lines: list[bytes]) -> None:
        # What a terminal would show of a line rewritten by carriage returns: its last state.
        shown = [line.rstrip(b"\r").rsplit(b"\r", 1)[-1].replace(_CLEAR, b"") + b"\n" for line in lines]
        if self.keep is not None:
            self.keep.extend(_TORCH_PREFIX.sub(b"", line) for line in shown)
        self.target.write(b"".join(self.prefix + line for line in shown))
        self.target.flush()
        if self.log is not None:
            try:
                self.log.write(b"".join(shown))
            except OSError as error:  # such as a full disk, which must not end the job
                say(f"{self.log.name} gets no more lines: {error.strerror}")
                self.log = None


class Output:
    """Where the output of all workers goes: to the launcher's own streams, and to a file for each worker."""

    def __init__(self, world: int, *, prefix: bool = True, logs: Path | None = None, life: int = 0) -> None:
        """
        :param world: number of workers
        :param logs: a directory for ``rank-K.log``, or ``rank-K.restart-L.log`` in life L after the first
        """
        self.width = len(str(world - 1))
        self.prefix, self.logs, self.life = prefix, logs, life
        self._open = contextlib.ExitStack()
        self._progress = Progress()

    def __call__(self, worker: Worker) -> tuple[Callable[[bytes], None], Callable[[bytes], None]]:
        """Takes what a worker writes to its two streams."""
        label = f"[{worker.rank.rjust(self.width)}] ".encode() if self.prefix else b""
        log: IO[bytes] | None = None
        if self.logs is not None:
            name = f"rank-{worker.rank}{f'.restart-{self.life}' if self.life else ''}.log"
            log = self._open.enter_context(io.FileIO(self.logs / name, "wb"))
        out = Lines(sys.stdout.buffer, label, None, log, self._progress)
        err = Lines(sys.stderr.buffer, label, worker.errors, log, self._progress)
        err.rewrites = worker.rank == "0" and sys.stderr.isatty()
        return out.feed, err.feed

    def close(self) -> None:
        self._open.close()


def say(text: str) -> None:
    """A line of the launcher itself."""
    sys.stderr.flush()
    sys.stderr.buffer.write(f"sar launch: {text}\n".encode())
    sys.stderr.buffer.flush()
