"""Records of a run: what a worker holds, has sent and has waited for, and what its script tells of its epochs.

They are dictionaries that JSON can hold. :class:`sar.RunLog` writes them to files, :mod:`.metrics` passes them on.
"""

from __future__ import annotations

import json
import math
import os
import platform
import socket
import sys
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Mapping

import numpy
import torch

from sar._engine import abi, library
from sar._engine.session import Session
from sar.config import Config

from .log_files import VERSION

_SECRET = ("SAR_JOB_TOKEN", "SAR_SECRET_FILE")


def start(session: Session, settings: Mapping[str, Any]) -> Dict[str, Any]:
    """The first record of a run.

    :param settings: of the script, shown as text
    """
    return {
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


def measured(session: Session) -> Dict[str, Any]:
    """What this worker holds now, and has sent, received and waited for since the session began. Sends nothing."""
    found = abi.session_stats(session.handle)
    sent: Dict[str, int] = {}
    received: Dict[str, int] = {}
    waited: Dict[str, float] = {}
    for link in found["links"]:
        peer = str(link["peer"])
        sent[peer] = sent.get(peer, 0) + link["sent_bytes"]
        received[peer] = received.get(peer, 0) + link["recv_bytes"]
        waited[peer] = waited.get(peer, 0.0) + link["wait_seconds"]
    window = found["window"]
    return {
        "memory": {name: [used["live"], used["peak"]] for name, used in abi.memory_stats().items()},
        "operations": {
            kind: [of["count"], of["seconds"], of["wait_seconds"]] for kind, of in found["operations"].items()
        },
        "sent": sent,
        "received": received,
        "waited": waited,
        "window": [window["limit"], window["live"], window["peak"]],
    }


class Epochs:
    """Makes the record of each epoch, with the seconds that it and its phases took."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._begin = self._last = time.perf_counter()
        self._phases: Dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the seconds of the ``with`` block as those of a phase of the current epoch."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.perf_counter() - begin

    def end(self, epoch: int, values: Mapping[str, Any]) -> Dict[str, Any]:
        """The record of the epoch that ends now.

        :raises TypeError: a value is neither a number nor numbers by name
        """
        now = time.perf_counter()
        record = {
            "event": "epoch",
            "epoch": int(epoch),
            "seconds": now - self._begin,
            "took": now - self._last,
            "values": {name: _plain(name, value) for name, value in values.items()},
            "phases": self._phases,
            **measured(self._session),
        }
        self._phases, self._last = {}, now
        return record


class RecordFile:
    """A file of records, a line of JSON each. It replaces a file of that name.

    :raises OSError: the file cannot be written
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115

    def write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record, default=str, allow_nan=False) + "\n")
        self._file.flush()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        """Closes the file; harmless when called twice."""
        self._file.close()


def versions() -> Dict[str, str]:
    """Of what takes part."""
    found = {
        "sar": library.call("sar_version"),
        "kernels": library.call("sar_simd"),
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
