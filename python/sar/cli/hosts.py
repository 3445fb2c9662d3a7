"""Reads ``--hosts`` and ``--hostfile``."""

from __future__ import annotations

import re
from typing import NamedTuple

# an address with colons stands in brackets, so that the number of workers can follow
_HOST = re.compile(r"(?P<user>[^@\s:,]+@)?(?:\[(?P<six>[0-9a-fA-F:.%\w]+)\]|(?P<name>[\w.-]+))(?::(?P<workers>\d+))?")
_SLOTS = re.compile(r"(?:slots|max[-_]slots)\s*=\s*(\d+)")


class HostSpec(NamedTuple):
    """A host, and how many workers it gets."""

    name: str
    """As ssh takes it: ``[user@]host``."""
    workers: int

    @property
    def address(self) -> str:
        """Without the user."""
        return self.name.rpartition("@")[2]


def parse(text: str, default: int) -> list[HostSpec]:
    """``a:2,b:2``. A host without a number gets ``default`` workers.

    :raises ValueError: which entry is none
    """
    return _joined([_entry(entry.strip(), default, "--hosts") for entry in text.split(",")])


def read(path: str, default: int) -> list[HostSpec]:
    """A file with a host in each line: ``host``, ``host:2`` as MPICH has it, or ``host slots=2`` as Open MPI does. A
    host in several lines gets the workers of all of them, as in the files of batch systems.

    :raises ValueError: which line is none
    :raises OSError: the file cannot be read
    """
    found = []
    with open(path, encoding="utf-8") as handle:
        for number, line in enumerate(handle, 1):
            words = line.partition("#")[0].split(None, 1)
            if not words:
                continue
            where = f"{path}, line {number}"
            spec = _entry(words[0], default, where)
            slots = _SLOTS.match(words[1]) if len(words) > 1 else None
            if len(words) > 1 and slots is None:
                raise ValueError(
                    f"{where}: {words[1].strip()!r} is not understood: give slots=N after a host, or nothing"
                )
            found.append(spec._replace(workers=_positive(int(slots[1]), where)) if slots else spec)
    if not found:
        raise ValueError(f"{path} names no host")
    return _joined(found)


def _entry(text: str, default: int, where: str) -> HostSpec:
    match = _HOST.fullmatch(text)
    if match is None or (match["user"] or match["name"] or "").startswith("-"):
        raise ValueError(f"{where}: {text!r} is no host: give HOST, HOST:WORKERS or [IPV6]:WORKERS")
    workers = default if match["workers"] is None else _positive(int(match["workers"]), where)
    return HostSpec((match["user"] or "") + (match["six"] or match["name"]), workers)


def _positive(workers: int, where: str) -> int:
    if workers < 1:
        raise ValueError(f"{where}: a host needs at least one worker; leave out hosts that get none")
    return workers


def _joined(specs: list[HostSpec]) -> list[HostSpec]:
    """One entry for each host, in the order in which they first appear."""
    workers: dict[str, int] = {}
    for spec in specs:
        workers[spec.name] = workers.get(spec.name, 0) + spec.workers
    return [HostSpec(name, count) for name, count in workers.items()]
