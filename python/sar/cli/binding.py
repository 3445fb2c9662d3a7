"""Which processor cores each worker of a host runs on, and how many threads it has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

MODES = ("numa", "cores", "none")
_SYSTEM = Path("/sys/devices/system")
_SPINS = 10_000
"""Turns, 0.1 to 0.2 ms, that a thread of torch waits for work before it sleeps. Without a word to GNU's OpenMP it is
300,000, and for those milliseconds the engine lacks a processor: an epoch of SAGE took 1.1 to 1.18 times as long."""


class Seat(NamedTuple):
    """The cores of one worker."""

    cores: frozenset[int] | None
    """Logical processors that it is bound to; ``None``: the launcher's own."""
    threads: int

    def variables(self) -> dict[str, str]:
        """What tells the worker of its threads, and, where the user has not said it, how long they wait for work."""
        found = dict.fromkeys(("OMP_NUM_THREADS", "SAR_NUM_THREADS"), str(self.threads))
        if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
            found["GOMP_SPINCOUNT"] = str(_SPINS)
        return found


def seats(mode: str, workers: int, threads: int | None = None, system: Path = _SYSTEM) -> list[Seat]:
    """Divides the processors that this process may use among the workers of this host, in order of local rank.

    ``numa`` binds each worker to the NUMA node that it shares with its neighbours, or to several nodes where there are
    fewer workers than nodes; memory then comes from there, as Linux takes it from the node of the processor that first
    writes to it. ``cores`` divides the cores of the nodes further, so that no two workers share one. Each worker has as
    many threads as its share of the processors, unless ``threads`` says otherwise.

    :param system: where the kernel describes the machine
    :raises ValueError: ``cores``, and there are more workers than processors
    """
    allowed = os.sched_getaffinity(0)
    if mode == "none":
        return [Seat(None, threads or max(1, len(allowed) // workers))] * workers
    if mode == "cores" and len(allowed) < workers:
        raise ValueError(
            f"--bind cores: {workers} workers and {len(allowed)} processors that they may use; start fewer workers, or "
            "leave out --bind"
        )
    nodes = _nodes(allowed, system)
    found = []
    for own, sharers in _divide(nodes, workers):
        together = [cpu for node in own for cpu in node]
        for k in range(sharers):
            cores = _part(_physical(together, sharers, system), k, sharers) if mode == "cores" else together
            share = len(cores) if mode == "cores" else len(cores) // sharers
            found.append(Seat(frozenset(cores), threads or max(1, share)))
    return found


def _divide(nodes: list[list[int]], workers: int) -> list[tuple[list[list[int]], int]]:
    """Groups of nodes, and how many workers share each."""
    k = len(nodes)
    if workers < k:
        return [(nodes[i * k // workers : (i + 1) * k // workers], 1) for i in range(workers)]
    # as many workers as its processors can do with: those of a smaller node go to a larger one
    counts = [0] * k
    for _ in range(workers):
        best = max(range(k), key=lambda i: (len(nodes[i]) / (counts[i] + 1), -i))
        counts[best] += 1
    return [([node], count) for node, count in zip(nodes, counts) if count]


def _part(units: list[list[int]], k: int, of: int) -> list[int]:
    return [cpu for unit in units[k * len(units) // of : (k + 1) * len(units) // of] for cpu in unit]


def _physical(cpus: list[int], sharers: int, system: Path) -> list[list[int]]:
    """The processors of each core, in order. Where there are more workers than cores, each processor by itself."""
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in cpus:
        about = system / f"cpu/cpu{cpu}/topology"
        cores.setdefault((_number(about / "physical_package_id"), _number(about / "core_id", cpu)), []).append(cpu)
    units = [cores[name] for name in sorted(cores)]
    return units if len(units) >= sharers else [[cpu] for unit in units for cpu in unit]


def _number(file: Path, default: int = 0) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return default


def _nodes(allowed: set[int], system: Path) -> list[list[int]]:
    """The allowed processors of each NUMA node that has any, in order; all of them where the kernel tells of none."""
    found = []
    for directory in sorted((system / "node").glob("node[0-9]*"), key=lambda d: int(d.name[4:])):
        try:
            own = sorted(allowed & parse_list((directory / "cpulist").read_text()))
        except (OSError, ValueError):
            continue
        if own:
            found.append(own)
    rest = sorted(allowed.difference(*found))
    return found + [rest] if rest else found


def parse_list(text: str) -> set[int]:
    """The numbers of a list as the kernel writes it: ``0-3,8``."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found
