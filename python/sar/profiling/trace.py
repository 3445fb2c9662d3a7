"""Records a timeline of a run, and profiles the engine's CPU time."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Tuple

from sar._engine import library, session as _session
from sar._engine.log import logger

from .log_files import own_file

_CLOCK = "sar.trace clock"
_MARKERS = 9
"""Any of them may be interrupted between the two clocks. The one that took the least time was not."""
_ENGINE_TID = 1000
"""Lanes of the engine are numbered from here, clear of thread ids that torch gives."""


@contextmanager
def trace(path: str, torch_ops: bool = True, capacity: int = 200_000) -> Iterator[None]:
    """Records a timeline of what happens inside the ``with`` block, for https://ui.perfetto.dev or chrome://tracing.

    Shows, per communicator of the engine, its operations, and in them: rows produced for others, rows consumed, and
    the waits for either. With ``torch_ops`` also what torch runs on this thread, which slows small operations down.
    Not collective; with several workers each writes ``NAME.rank<r>.json`` (join them with ``sar trace``).

    :param path: the file to write, Trace Event Format (JSON)
    :param torch_ops: record torch's operations as well
    :param capacity: events of the engine to keep, at most 1048576; how many there was no room for is logged
    :raises RuntimeError: a trace is being recorded already, or ``capacity`` is out of range
    """
    face = library.face()
    face.TraceStart(capacity)
    stopped: Dict[str, Any] = {}
    try:
        if torch_ops:
            from torch.profiler import ProfilerActivity, profile, record_function

            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                read = []
                for number in range(_MARKERS):
                    before = time.time_ns()
                    with record_function(f"{_CLOCK} {number}"):
                        pass
                    read.append((before, time.time_ns()))
                yield
        else:
            yield
    finally:
        stopped = json.loads(face.TraceStop())
    session = _session.peek()
    rank, world = (session.rank, session.world) if session else (0, 1)
    events = _named(rank, stopped)
    if torch_ops:
        events += _of_torch(profiler, read, rank)
    if stopped["dropped"]:
        logger.warning("the trace had no room for %d events: give a larger capacity", stopped["dropped"])
    with open(own_file(path, rank, world, ".json"), "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)


def _named(rank: int, recorded: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The engine's events with the worker as process and names for both."""
    events: List[Dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}},
        {"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}},
    ]
    for lane, title in recorded["lanes"].items():
        tid = _ENGINE_TID + int(lane)
        events.append({"name": "thread_name", "ph": "M", "pid": rank, "tid": tid, "args": {"name": title}})
    for event in recorded["events"] or ():
        event["pid"] = rank
        event["tid"] += _ENGINE_TID
        events.append(event)
    return events


def _of_torch(profiler: Any, read: List[Tuple[int, int]], rank: int) -> List[Dict[str, Any]]:
    """Torch's own events, on the engine's clock. What its clock begins at is not the same in all versions, hence the
    markers: ours was ``read``, in nanoseconds, before and after each of them."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "torch.json")
        profiler.export_chrome_trace(name)
        with open(name, encoding="utf-8") as file:
            found = json.load(file)["traceEvents"]
    spans = [e for e in found if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    shortest = min(range(len(read)), key=lambda number: read[number][1] - read[number][0])
    marker = next((e for e in spans if e["name"] == f"{_CLOCK} {shortest}"), None)
    if marker is None:
        return []
    shift = sum(read[shortest]) / 2e3 - (marker["ts"] + marker["dur"] / 2)
    threads: Dict[Any, int] = {}
    kept = []
    for event in spans:
        if event["name"].startswith(_CLOCK):
            continue
        tid = threads.setdefault(event["tid"], len(threads) + 1)
        kept.append(
            {"name": event["name"], "ph": "X", "ts": event["ts"] + shift, "dur": event["dur"], "pid": rank, "tid": tid}
        )
    kept += [
        {"name": "thread_name", "ph": "M", "pid": rank, "tid": tid, "args": {"name": f"torch thread {tid}"}}
        for tid in threads.values()
    ]
    return kept


@contextmanager
def engine_profile(path: str) -> Iterator[None]:
    """Writes where the engine's goroutines spend CPU time to ``path``, in pprof's format (``go tool pprof``).

    :raises RuntimeError: a profile is being taken already, or the file cannot be written
    """
    face = library.face()
    face.ProfileStart(path)
    try:
        yield
    finally:
        face.ProfileStop()
