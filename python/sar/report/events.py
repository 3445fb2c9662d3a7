"""Reads the logs of a run. They come from outside: everything is checked before it is used."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from sar.data.directory import open_regular
from sar.errors import FormatError
from sar.profiling.log_files import VERSION, name_of

LONGEST_LINE = 1 << 20
"""Characters of a line."""
_FILE = re.compile(r"rank(\d{5})\.jsonl")


@dataclass
class Epoch:
    """What a worker wrote at the end of an epoch; numbers are finite, or None where a value was not."""

    epoch: int
    seconds: float
    took: float
    values: Dict[str, Any]
    phases: Dict[str, float]
    memory: Dict[str, List[int]]
    """By purpose: bytes now, and at most so far."""
    operations: Dict[str, List[float]]
    """By kind, so far: count, seconds, and of these seconds of waiting for others."""
    sent: Dict[int, int]
    """By peer: bytes so far."""


@dataclass
class Worker:
    """One file."""

    rank: int
    world: int
    start: Dict[str, Any]
    epochs: List[Epoch] = field(default_factory=list)
    error: str = ""
    cut_short: bool = False
    """The last line is not complete: the worker died, or is still writing."""


@dataclass
class Run:
    workers: List[Worker]
    world: int
    missing: List[int]


def read(folder: str) -> Run:
    """The logs in a folder.

    :raises FileNotFoundError: there is none
    :raises sar.FormatError: a line is not what it should be; names file and line
    """
    names = sorted(name for name in os.listdir(folder) if _FILE.fullmatch(name))
    if not names:
        raise FileNotFoundError(f"the folder {folder} holds no {name_of(0)}: give one that sar.RunLog wrote")
    workers = [_worker(os.path.join(folder, name), name) for name in names]
    newest = max(workers, key=lambda w: w.start["time"])
    kept = [w for w in workers if w.rank < newest.world]  # others are left from a run of more workers
    there = {w.rank for w in kept}
    return Run(kept, newest.world, [rank for rank in range(newest.world) if rank not in there])


def _worker(path: str, name: str) -> Worker:
    found: Optional[Worker] = None
    with open_regular(path) as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > LONGEST_LINE:
                raise FormatError(f"{where}: longer than {LONGEST_LINE} characters", path)
            if not line.endswith("\n"):
                if found is not None:
                    found.cut_short = True
                break
            try:
                event = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FormatError(f"{where}: not JSON ({error})", path) from None
            try:
                if found is None:
                    found = _start(event)
                    if name != name_of(found.rank):
                        raise ValueError(f"it is of rank {found.rank}")
                elif event["event"] == "epoch":
                    found.epochs.append(_epoch(event, found.world))
                elif event["event"] == "error":
                    found.error = str(event["text"])
                else:
                    raise ValueError(f"unknown event {event['event']!r}")
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                raise FormatError(f"{where}: not a line of sar.RunLog: {what}", path) from None
    if found is None:
        raise FormatError(f"{path}: no line of sar.RunLog", path)
    return found


def _start(event: Dict[str, Any]) -> Worker:
    if event["event"] != "start" or event["version"] != VERSION:
        raise ValueError(f"expected the start of a log of version {VERSION}")
    rank, world = _count(event["rank"]), _count(event["world"])
    if rank >= world or world > 1 << 20:
        raise ValueError(f"rank {rank} of {world}")
    for name in ("versions", "config", "environment", "settings"):
        event[name] = {str(k): str(v) for k, v in event[name].items()}
    event["time"] = _number(event["time"])
    return Worker(rank, world, event)


def _epoch(event: Dict[str, Any], world: int) -> Epoch:
    sent = {int(peer): _count(n) for peer, n in event["sent"].items()}
    if any(not 0 <= peer < world for peer in sent):
        raise ValueError(f"a peer outside 0..{world - 1}")
    return Epoch(
        epoch=int(event["epoch"]),
        seconds=_number(event["seconds"]),
        took=_number(event["took"]),
        values={str(k): _values(v) for k, v in event["values"].items()},
        phases={str(k): _number(v) for k, v in event["phases"].items()},
        memory={str(k): [_count(n) for n in _exactly(v, 2)] for k, v in event["memory"].items()},
        operations={str(k): [_number(n) for n in _exactly(v, 3)] for k, v in event["operations"].items()},
        sent=sent,
    )


def _exactly(values: Any, count: int) -> Any:
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"expected {count} numbers, found {values!r:.80}")
    return values


def _values(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): None if v is None else _number(v) for k, v in value.items()}
    return None if value is None else _number(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r:.80} is no finite number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r:.80} is no count")
    return value
