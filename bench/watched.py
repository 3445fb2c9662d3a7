"""Runs a command and watches its memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import NamedTuple

from sar.cli.output import Failure

_EVERY = 0.05  # seconds between two looks


class Watched(NamedTuple):
    """What a command took. ``peaks`` are resident bytes by line of ``steps``, which are those that it wrote to stderr:
    the most until each was written, and after the last one."""

    seconds: float
    processor_seconds: float
    peaks: list[int]
    steps: list[str]
    output: str

    @property
    def peak(self) -> int:
        return max(self.peaks)


def resident_of_tree(pid: int) -> int:
    """Resident bytes of a process and what it started."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(OSError, StopIteration):
            with open(f"/proc/{one}/task/{one}/children", encoding="ascii") as file:
                waiting += map(int, file.read().split())
            with open(f"/proc/{one}/status", encoding="ascii") as file:
                total += next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))
    return total


def watch(command: list[str]) -> Watched:
    """Runs a command that prints little.

    :raises Failure: it ends with an error
    """
    begin, before = time.perf_counter(), os.times()
    steps: list[str] = []
    peaks = [0]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.set_blocking(process.stderr.fileno(), False)
        while process.poll() is None:
            steps += process.stderr.readlines()
            peaks += [0] * (len(steps) + 1 - len(peaks))
            peaks[-1] = max(peaks[-1], resident_of_tree(process.pid))
            time.sleep(_EVERY)
        steps += process.stderr.readlines()
        output = process.stdout.read()
    if process.returncode:
        raise Failure("".join(steps[-5:]))
    after = os.times()
    peaks += [0] * (len(steps) + 1 - len(peaks))
    used = sum(after[2:4]) - sum(before[2:4])
    return Watched(time.perf_counter() - begin, used, peaks, [line.strip() for line in steps], output)
