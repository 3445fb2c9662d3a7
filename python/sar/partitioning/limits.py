"""How much memory there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def available() -> int:
    """Bytes that this process may take: what the machine has left, and what its cgroups leave it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next((int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")), 1 << 30)
    return max(0, min([free, *_left_in_cgroups()]))


def _left_in_cgroups() -> Iterator[int]:
    """For each cgroup of version 2 above this process that has a limit, what is left of it. Page cache that can be
    dropped counts as left."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").split("\n")
    except OSError:
        return
    path = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = root / path.lstrip("/")
    for group in [folder, *folder.parents]:
        try:
            limit = (group / "memory.max").read_text(encoding="ascii").strip()
            used = int((group / "memory.current").read_text(encoding="ascii"))
            stat = (group / "memory.stat").read_text(encoding="ascii").split("\n")
        except (OSError, ValueError):
            continue
        if limit.isdigit():
            cache = sum(int(line.split()[1]) for line in stat if line.startswith(("inactive_file ", "active_file ")))
            yield int(limit) - max(0, used - cache)
        if group == root:
            return
