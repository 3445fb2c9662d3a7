"""The session of this process, and its collectives on torch tensors."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Optional, Sequence, Set

import torch
from torch import Tensor

from sar.config import Config

from . import abi, communicator, schedule
from .communicator import Lane


class Session:
    """What :func:`sar.initialize_comms` set up."""

    def __init__(
        self, handle: int, rank: int, world: int, backend: str, device: torch.device, master_ip: str, master_port: int
    ) -> None:
        self.handle = handle
        self.rank = rank
        self.world = world
        self.backend = backend
        self.device = device
        self.master_ip = master_ip
        self.master_port = master_port
        self.window = Config.window_bytes or 0  # 0: the engine's to size
        self.exchange = "auto"
        self.lane = Lane(lambda: handle, lambda _: None)  # of operations on the communicator REDUCE
        self.process_group: Any = None  # torch's default group, if it was made for this session
        self.wrong_number: Callable[[int], str] = str  # how to start that many workers, and how it was done

    def check_parts(self, what: str, parts: int) -> None:
        """:raises ValueError: ``what`` has another number of partitions than there are workers"""
        if parts != self.world:
            raise ValueError(
                f"{what} {parts} partitions, but {self.world} workers take part: start {parts} workers, or partition "
                f"the graph into {self.world}. {self.wrong_number(parts)}"
            )

    def follow_config(self) -> None:
        """Passes changed settings to the engine: ``window_bytes`` and ``exchange``. Collective if the window changed.

        :raises ValueError: ``Config.exchange`` is none of its values
        """
        if Config.exchange != self.exchange:
            if Config.exchange not in abi.EXCHANGES:
                known = ", ".join(map(repr, abi.EXCHANGES))
                raise ValueError(f"sar.Config.exchange is {Config.exchange!r}: it is one of {known}")
            abi.session_set_exchange(self.handle, Config.exchange)
            self.exchange = Config.exchange
        wanted = Config.window_bytes or 0
        if wanted != self.window:
            abi.session_set_window(self.handle, wanted)
            self.window = wanted


_current: Optional[Session] = None
_was_shut_down = False
groups: Set[int] = set()
"""The handles of the sessions of torch's process groups."""
_lock = threading.Lock()


def peek() -> Optional[Session]:
    """The session, or ``None`` before :func:`sar.initialize_comms` and after shutdown."""
    return _current


def current() -> Session:
    """The session.

    :raises RuntimeError: there is none (any more)
    """
    if _current is None:
        if _was_shut_down:
            raise RuntimeError(
                "SAR was shut down in this process (sar.comm.shutdown); "
                "call sar.initialize_comms again before using graphs or collectives"
            )
        raise RuntimeError("SAR is not initialized: call sar.initialize_comms() first")
    return _current


def handles() -> List[int]:
    """Of all sessions of this process."""
    return ([] if _current is None else [_current.handle]) + list(groups)


def install(session: Session) -> None:
    global _current
    with _lock:
        _current = session
        schedule.follow(session.handle if session.world > 1 else None, session.rank)


def remove() -> Optional[Session]:
    """Removes and returns the session, so that it is closed only once; ``None`` if another thread removed it first."""
    global _current, _was_shut_down
    with _lock:
        session, _current = _current, None
        if session is not None:
            _was_shut_down = True
            schedule.follow()
    return session


# ---- collectives on tensors: see :mod:`sar._engine.communicator` -------------


def all_reduce(
    tensor: Tensor, op: str = "sum", comm: int = abi.REDUCE, of: Optional[schedule.Operation] = None
) -> None:
    """:param of: in backward, the forward operation it belongs to"""
    _run(communicator.all_reduce, "an all-reduce", of, comm, tensor, op)


def broadcast(tensor: Tensor, root: int = 0, comm: int = abi.REDUCE) -> None:
    _run(communicator.broadcast, "a broadcast", None, comm, tensor, root)


def all_to_all(
    recv: Sequence[Tensor],
    send: Sequence[Tensor],
    comm: int = abi.REDUCE,
    of: Optional[schedule.Operation] = None,
) -> None:
    """:param of: as of :func:`all_reduce`"""
    _run(communicator.all_to_all, "an all-to-all", of, comm, recv, send)


def _run(
    operation: Callable[..., None], name: str, of: Optional[schedule.Operation], comm: int, *arguments: Any
) -> None:
    session = current()
    if comm == abi.TRAIN:
        schedule.begin(name, of)
        operation(session.handle, comm, *arguments)
    else:
        session.lane.now(operation, comm, *arguments)
