"""Keeps the log of a run, one file a worker, for ``sar report``."""

from __future__ import annotations

import json
import math
import os
import platform
import socket
import sys
import time
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Dict, Iterator, Mapping, Optional, Type, Union

import numpy
import torch

from sar._engine import library, session as _session
from sar.config import Config

from .log_files import VERSION, name_of
from .stats import memory_stats, stats

_SECRET = ("SAR_JOB_TOKEN", "SAR_SECRET_FILE")


class RunLog:
    """Writes what a run does to ``FOLDER/rank00000.jsonl`` and so on: a line of JSON at the start, and one an epoch.

    ::

        with sar.RunLog("run", lr=0.01) as log:
            for epoch in range(1, 101):
                with log.phase("forward"):
                    ...
                log.epoch(epoch, loss=loss, accuracy={"train": a, "val": b})

    Each worker writes its own file and sends nothing to others, so some of them may go without. ``sar report run``
    makes a page of the folder. A file of an earlier run is replaced.

    :param folder: made where it is missing
    :param settings: of the script, such as the learning rate; anything, shown as text
    :raises OSError: the file cannot be written
    :raises RuntimeError: before :func:`sar.initialize_comms`
    """

    def __init__(self, folder: Union[str, os.PathLike[str]], **settings: Any) -> None:
        session = _session.current()
        os.makedirs(folder, exist_ok=True)
        self._file = open(os.path.join(folder, name_of(session.rank)), "w", encoding="utf-8")  # noqa: SIM115
        self._begin = self._last = time.perf_counter()
        self._phases: Dict[str, float] = {}
        self._write(
            {
                "event": "start",
                "version": VERSION,
                "rank": session.rank,
                "world": session.world,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "time": time.time(),
                "versions": versions(),
                "config": {name: getattr(Config, name) for name in dir(Config) if not name.startswith("_")},
                "environment": {
                    name: value
                    for name, value in sorted(os.environ.items())
                    if name.startswith(("SAR_", "OMP_", "MALLOC_")) and name not in _SECRET
                },
                "threads": torch.get_num_threads(),
                "settings": {name: str(value) for name, value in settings.items()},
            }
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the seconds of the ``with`` block as those of a phase of the current epoch. Phases do not overlap:
        time in an inner one would count twice."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.perf_counter() - begin

    def epoch(self, epoch: int, **values: Any) -> None:
        """Ends an epoch: writes its values, the seconds of its phases, and what the worker holds and has sent.

        :param values: numbers, or numbers by name, as in ``accuracy={"train": 0.9}``; each is a picture of the report,
            of rank 0
        :raises TypeError: something else
        """
        now = time.perf_counter()
        traffic = stats()
        sent: Dict[str, int] = {}
        for link in traffic["links"]:
            peer = str(link["peer"])
            sent[peer] = sent.get(peer, 0) + link["sent_bytes"]
        self._write(
            {
                "event": "epoch",
                "epoch": int(epoch),
                "seconds": now - self._begin,
                "took": now - self._last,
                "values": {name: _plain(name, value) for name, value in values.items()},
                "phases": self._phases,
                "memory": {name: [used["live"], used["peak"]] for name, used in memory_stats().items()},
                "operations": {
                    kind: [found["count"], found["seconds"], found["wait_seconds"]]
                    for kind, found in traffic["operations"].items()
                },
                "sent": sent,
            }
        )
        self._phases, self._last = {}, now

    def close(self) -> None:
        """Closes the file; harmless when called twice."""
        self._file.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is not None and not self._file.closed:
            self._write({"event": "error", "text": f"{type(error).__name__}: {error}"})
        self.close()

    def _write(self, line: Dict[str, Any]) -> None:
        self._file.write(json.dumps(line, default=str, allow_nan=False) + "\n")
        self._file.flush()


def versions() -> Dict[str, str]:
    """Of what takes part."""
    found = {
        "sar": library.text_call("sar_version"),
        "kernels": library.text_call("sar_simd"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
    }
    dgl = sys.modules.get("dgl")
    if dgl is not None:
        found["dgl"] = str(getattr(dgl, "__version__", "?"))
    return found


def _plain(name: str, value: Any) -> Any:
    """A number as JSON has it: None where it is not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(f"{name}[{key!r}]", inner) for key, inner in value.items()}
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is a {type(value).__name__}: give a number, or numbers by name") from None
    return number if math.isfinite(number) else None
