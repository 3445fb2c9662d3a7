"""A control group of Linux that limits the memory of a process, its share of the page cache included."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import NamedTuple, Optional


class Group(NamedTuple):
    """A group; the other fields are names of its files. ``swap_with_memory``: the swap file limits both together."""

    folder: str
    limit: str
    peak: str
    swap: str
    swap_with_memory: bool

    def most(self) -> Optional[int]:
        """The most bytes that counted; None where the system does not tell."""
        try:
            return int(_read(self.folder, self.peak))
        except FileNotFoundError:
            return None


def enter(folder: str) -> None:
    """Puts this process into a group. What it has by then stays where it was counted."""
    _write(folder, "cgroup.procs", os.getpid())


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return file.read()


def _write(folder: str, name: str, value: int) -> None:
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(str(value))


def _parent(proc: str = "/proc/self") -> Group:
    """A group under which one with a memory limit can be made. Version 1: the one that this process is in. Version 2:
    the nearest one above that gives its children the memory controller; a group with processes gives them none."""
    mounts: dict[str, tuple[str, str]] = {}  # by version: which group is mounted, and where
    for line in _read(proc, "mountinfo").splitlines():
        fields, kind = (part.split() for part in line.split(" - "))
        if kind[0] == "cgroup2" or (kind[0] == "cgroup" and "memory" in kind[2].split(",")):
            mounts.setdefault(kind[0], (fields[3], fields[4]))
    groups = [line.split(":", 2) for line in _read(proc, "cgroup").splitlines()]
    for _, controllers, path in groups:
        if "memory" in controllers.split(",") and "cgroup" in mounts:
            names = "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.memsw.limit_in_bytes"
            return Group(_folder(path, *mounts["cgroup"]), *names, True)
    for number, _, path in groups:
        if number != "0" or "cgroup2" not in mounts:
            continue
        root, mount = mounts["cgroup2"]
        folder = _folder(path, root, mount)
        while "memory" not in _read(folder, "cgroup.subtree_control").split():
            if folder == mount:
                raise OSError(errno.ENOTSUP, "no group above gives its children the memory controller", mount)
            folder = os.path.dirname(folder)
        return Group(folder, "memory.max", "memory.peak", "memory.swap.max", False)
    raise OSError(errno.ENOTSUP, "no memory controller is mounted")


def _folder(path: str, root: str, mount: str) -> str:
    """Where group ``path`` lies, where group ``root`` is mounted at ``mount``; that itself, if ``path`` is outside."""
    below = os.path.relpath(path, root)
    return mount if below.startswith("..") else os.path.normpath(os.path.join(mount, below))


@contextlib.contextmanager
def limited(size: int) -> Iterator[Group]:
    """A group whose processes may take ``size`` bytes together, and no swap.

    :raises OSError: this process may not make one, or the system has none
    """
    parent = _parent()
    group = parent._replace(folder=os.path.join(parent.folder, f"limited-{os.getpid()}"))
    os.mkdir(group.folder)
    try:
        _write(group.folder, group.limit, size)
        with contextlib.suppress(OSError):  # a system without swap may not have the file
            _write(group.folder, group.swap, size if group.swap_with_memory else 0)
        yield group
    finally:
        os.rmdir(group.folder)
