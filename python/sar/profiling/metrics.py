"""Metrics of the running job: ``sar.metrics``, and who is told of them under ``SAR_METRICS``."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Protocol, TypedDict, Union

from torch import Tensor

from sar._engine import session as _session
from sar._engine.log import logger
from sar._engine.session import Session

from . import records
from .log_files import name_of, own_file
from .progress import ProgressLine, progress_line
from .samples import slowest

VARIABLE = "SAR_METRICS"
_FORMS = "prometheus:PORT, prometheus:HOST:PORT, jsonl:FILE, tensorboard:FOLDER"
_LOOPBACK = "127.0.0.1"


class _Reader(Protocol):
    """Who is told of epochs."""

    def write(self, record: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class _Told:
    """What this process's script told in the current session, and who reads it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.epochs = records.Epochs(session)
        self.last: Mapping[str, Any] = {"epoch": None, "took": None, "values": {}, "phases": {}}
        self.reader: Optional[_Reader] = None
        self.line: Optional[ProgressLine] = progress_line(session.rank)


_told: Optional[_Told] = None


def start(session: Session) -> None:
    """Opens what ``SAR_METRICS`` names, if anything.

    :raises ValueError: it names nothing that there is
    :raises OSError: the file cannot be written, or the port is not free
    :raises MissingLibraryError: its library is not installed
    """
    global _told
    _told = _Told(session)
    text = os.environ.get(VARIABLE, "")
    if text:
        try:
            _told.reader = _open(text, session)
        except OSError as error:
            raise type(error)(error.errno, f"{VARIABLE}={text}: {error.strerror}", error.filename) from None


def stop() -> None:
    """Closes it. Harmless when called twice."""
    global _told
    told, _told = _told, None
    if told is not None and told.line is not None:
        told.line.close()
    if told is not None and told.reader is not None:
        try:
            told.reader.close()
        except OSError as error:
            logger.warning("%s: %s", VARIABLE, error)


def tell(record: Mapping[str, Any], of: Optional[int]) -> None:
    """Passes the record of an epoch on. A reader that fails is left out from then on: the run continues.

    :param of: the number of the last epoch, if the script told it
    """
    told = _told
    if told is None:
        return
    told.last = record
    if told.line is not None and of is not None:
        told.line.write(record, of)
    if told.reader is not None:
        try:
            told.reader.write(record)
        except OSError as error:
            logger.warning("%s: no metrics from epoch %d on: %s", VARIABLE, record["epoch"], error)
            told.reader = None


Value = Union[float, Tensor, Mapping[str, Union[float, Tensor]]]
"""A number, or numbers by name."""


def log_epoch(epoch: int, of: Optional[int] = None, **values: Value) -> None:
    """Ends an epoch for :func:`sar.metrics` and ``SAR_METRICS``. :meth:`sar.RunLog.epoch` does this too, so call one
    of the two. Sends nothing, so some workers may go without.

    :param epoch: its number
    :param of: the number of the last epoch: rank 0 then shows a line with the time left, if its stderr is a terminal or
        that of ``sar launch`` is one
    :param values: numbers, or numbers by name, as in ``accuracy={"train": 0.9}``
    :raises TypeError: something else
    :raises RuntimeError: before :func:`sar.initialize_comms`
    """
    tell(_current().epochs.end(epoch, values), of)


class Metrics(TypedDict):
    """What :func:`metrics` says."""

    rank: int
    world: int
    epoch: Optional[int]
    took: Optional[float]
    values: Dict[str, Any]
    phases: Dict[str, float]
    memory: Dict[str, List[int]]
    operations: Dict[str, List[float]]
    sent: Dict[str, int]
    received: Dict[str, int]
    waited: Dict[str, float]
    window: List[int]
    slowest_peer: Optional[int]


def metrics() -> Metrics:
    """What this worker is doing: the last epoch that its script told of (:func:`sar.log_epoch`, :class:`sar.RunLog`),
    and what the engine counts at this moment. Sends nothing; other threads may call it.

    ``rank``, ``world``; ``epoch``, ``took`` (seconds of the last epoch), ``values`` (such as the loss), ``phases``
    (seconds by name), None or empty before the first epoch. Since the session began: ``sent`` and ``received``, bytes
    by peer; ``waited``, seconds by peer; ``operations``, by kind: count, seconds, and of these seconds of waiting;
    ``slowest_peer``, the rank waited for longest, None for one worker. Now: ``memory``, by purpose
    (:func:`sar.memory_stats`), bytes now and at most; ``window``, its size in bytes, what is held of it, and the most
    that was. Peers are text, as JSON has it.

    :raises RuntimeError: before :func:`sar.initialize_comms`
    """
    told = _current()
    session, last = told.session, told.last
    measured = records.measured(session)
    peer = slowest(measured["waited"])
    found: Any = {"rank": session.rank, "world": session.world}
    found.update({name: last[name] for name in ("epoch", "took", "values", "phases")}, **measured)
    found["slowest_peer"] = None if peer is None else int(peer)
    return found


def _current() -> _Told:
    told = _told
    if told is None:
        _session.current()  # says why there is none
        raise RuntimeError("the session is just being set up, or shut down")
    return told


def _open(text: str, session: Session) -> _Reader:
    kind, _, where = text.partition(":")
    if not where or kind not in ("prometheus", "jsonl", "tensorboard"):
        raise ValueError(f"{VARIABLE}={text!r}: give one of {_FORMS}")
    # imported here: few scripts use these
    if kind == "prometheus":
        from .prometheus import PrometheusServer

        host, port = _address(text, where, session.rank)
        return PrometheusServer(host, port, session.rank, metrics)
    if kind == "tensorboard":
        from .tensorboard import TensorBoardWriter

        return TensorBoardWriter(os.path.join(where, f"rank{session.rank:05d}"))
    path = own_file(where, session.rank, session.world, ".jsonl")
    if where.endswith("/"):
        os.makedirs(where, exist_ok=True)
        path = os.path.join(where, name_of(session.rank))
    file = records.RecordFile(path)
    file.write(records.start(session, {}))
    return file


def _address(text: str, where: str, rank: int) -> tuple[str, int]:
    """Where a worker listens: at the port given and its rank. Loopback, where no host is named."""
    host, _, number = where.rpartition(":")
    if not number.isascii() or not number.isdigit() or int(number) > 65535:
        raise ValueError(f"{VARIABLE}={text!r}: {number!r} is no port; give one of {_FORMS}")
    port = int(number) and int(number) + rank  # 0: a free one
    if port > 65535:
        raise ValueError(f"{VARIABLE}={text!r}: rank {rank} would listen at port {port}: choose a lower one")
    return host.strip("[]") or _LOOPBACK, port
