"""What workers print, handed on line by line."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from typing import IO

_LONGEST_LINE = 1 << 16
# How torch.distributed begins the lines of a traceback that it repeats.
_TORCH_PREFIX = re.compile(rb"^\[rank\d+\]: ?")


class Lines:
    """Bytes of one pipe, handed on as whole lines with a prefix."""

    def __init__(self, source: IO[bytes], target: IO[bytes], prefix: bytes, keep: deque[bytes] | None) -> None:
        self.source, self.target, self.prefix, self.keep = source, target, prefix, keep
        self.partial = b""

    def read(self) -> bool:
        """Handles what is there. False at the end of the stream."""
        data = os.read(self.source.fileno(), 1 << 16)
        whole, newline, self.partial = (self.partial + data).rpartition(b"\n")
        if len(self.partial) > _LONGEST_LINE:
            whole, newline, self.partial = whole + newline + self.partial, b"\n", b""
        if newline:
            self._emit(whole.split(b"\n"))
        if not data and self.partial:
            self._emit([self.partial])
            self.partial = b""
        return bool(data)

    def _emit(self, lines: list[bytes]) -> None:
        # What a terminal would show of a line rewritten by carriage returns: its last state.
        shown = [line.rstrip(b"\r").rsplit(b"\r", 1)[-1] + b"\n" for line in lines]
        if self.keep is not None:
            self.keep.extend(_TORCH_PREFIX.sub(b"", line) for line in shown)
        self.target.write(b"".join(self.prefix + line for line in shown))
        self.target.flush()


def say(text: str) -> None:
    """A line of the launcher itself."""
    sys.stderr.flush()
    sys.stderr.buffer.write(f"sar launch: {text}\n".encode())
    sys.stderr.buffer.flush()
