"""A control group of Linux that limits the memory of a process, its share of the page cache included."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple, Optional

ROOT = "/sys/fs/cgroup"


class Group(NamedTuple):
    """A group; ``limit`` and ``peak`` are the names of its files."""

    folder: str
    limit: str
    peak: str

    def most(self) -> Optional[int]:
        """The most bytes that counted; None where the system does not tell."""
        try:
            with open(os.path.join(self.folder, self.peak), encoding="ascii") as file:
                return int(file.read())
        except FileNotFoundError:
            return None


def enter(folder: str) -> None:
    """Puts this process into a group. What it has by then stays where it was counted."""
    with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write(str(os.getpid()))


def _own() -> Group:
    """The group that this process is in."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):  # version 1
            return Group(f"{ROOT}/memory{path}", "memory.limit_in_bytes", "memory.max_usage_in_bytes")
    path = next((path for number, _, path in lines if number == "0"), "/")
    return Group(f"{ROOT}{path}", "memory.max", "memory.peak")


@contextlib.contextmanager
def limited(size: int) -> Iterator[Group]:
    """A group whose processes may take ``size`` bytes together, and no swap.

    :raises OSError: this process may not make one, or the system has none
    """
    own = _own()
    group = own._replace(folder=os.path.join(own.folder, f"limited-{os.getpid()}"))
    os.mkdir(group.folder)
    try:
        with open(os.path.join(group.folder, group.limit), "w", encoding="ascii") as file:
            file.write(str(size))
        with contextlib.suppress(OSError), open(os.path.join(group.folder, "memory.swap.max"), "w") as file:
            file.write("0")
        yield group
    finally:
        os.rmdir(group.folder)
