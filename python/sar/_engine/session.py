"""The session of this process, and its collectives on torch tensors."""

from __future__ import annotations

import threading
from typing import Callable, List, Optional, Sequence, Set

import torch
from torch import Tensor

from sar.config import Config

from . import abi, schedule


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
        self.owns_process_group = False
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


# ---- collectives on tensors ------------------------------------------------


def all_reduce(
    tensor: Tensor, op: str = "sum", comm: int = abi.REDUCE, of: Optional[schedule.Operation] = None
) -> None:
    """``tensor = op over ranks of tensor``, in place, any device, stride or shape; the same bits on every rank.

    :param of: in backward, the forward operation it belongs to
    """
    session = current()
    _place(comm, "an all-reduce", of)
    work = flat_cpu(tensor)
    for piece in _pieces(work):
        abi.all_reduce(session.handle, comm, piece, op)
    give_back(tensor, work)


def broadcast(tensor: Tensor, root: int = 0, comm: int = abi.REDUCE) -> None:
    """Gives every rank the values that ``root`` holds, in place."""
    session = current()
    _place(comm, "a broadcast")
    work = flat_cpu(tensor)
    for piece in _pieces(work):
        abi.broadcast(session.handle, comm, piece, root)
    give_back(tensor, work)


def all_to_all(
    recv: Sequence[Tensor],
    send: Sequence[Tensor],
    comm: int = abi.REDUCE,
    of: Optional[schedule.Operation] = None,
) -> None:
    """``recv[q]`` gets what rank q has as ``send[own rank]``. ``of``: see :func:`all_reduce`."""
    session = current()
    _place(comm, "an all-to-all", of)
    work = [flat_cpu(t) for t in recv]
    abi.all_to_all(session.handle, comm, [flat_cpu(t) for t in send], work)
    for tensor, flat in zip(recv, work):
        give_back(tensor, flat)


def exchange_pair(
    send_to: int, send: Optional[Tensor], recv_from: int, recv: Optional[Tensor], comm: int = abi.REDUCE
) -> None:
    """Sends to one rank while receiving from another; -1 for neither."""
    session = current()
    work = None if recv is None else flat_cpu(recv)
    abi.exchange_pair(session.handle, comm, send_to, None if send is None else flat_cpu(send), recv_from, work)
    if recv is not None and work is not None:
        give_back(recv, work)


def _place(comm: int, what: str, of: Optional[schedule.Operation] = None) -> None:
    if comm == abi.TRAIN:
        schedule.begin(what, of)


def flat_cpu(tensor: Tensor) -> Tensor:
    """One dimension, contiguous, in CPU memory: the tensor's own memory where that is so already."""
    return tensor.detach().to("cpu").contiguous().view(-1)


def give_back(tensor: Tensor, work: Tensor) -> None:
    if tensor.numel() and work.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(work.view(tensor.shape))
    elif tensor.numel():
        # the engine wrote behind torch's back: autograd must notice that a saved tensor changed
        increment = getattr(torch.autograd.graph, "increment_version", None)
        if increment is not None:
            increment(tensor)


def _pieces(flat: Tensor) -> List[Tensor]:
    limit = int(Config.max_collective_size or 0)
    if limit <= 0 or flat.numel() <= limit:
        return [flat]
    return list(flat.split(limit))
