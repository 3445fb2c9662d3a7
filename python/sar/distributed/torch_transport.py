"""``SAR_TRANSPORT=torch``: links between workers carried by ``torch.distributed``, whatever its backend.

Messages are ``isend`` and ``irecv`` of CPU tensors over memory of the engine's, with a tag for each link and direction.
They are issued by one thread, in the order in which they were posted. Two threads for each link wait for what was sent
and received, since torch can neither wait for several operations nor take one back.
"""

from __future__ import annotations

import ctypes as ct
import datetime
import queue
import threading
from typing import Any, List, Optional, Tuple

import torch

from sar._engine import transports
from sar.errors import RendezvousError

from . import rendezvous

NAME = "torch"
DEFAULT_BACKEND = "gloo"
CPU_BACKENDS = ("gloo", "mpi", "ccl")
_UNUSED_TAG = 0
_FOREVER = datetime.timedelta(days=365)
_CLOSE_SECONDS = 1.0  # that links take to end where nothing has failed
_INTERRUPT_SECONDS = 3.0

_group: Any = None  # of the session that is open or being opened
_worker: Optional[_Worker] = None


def prepare(backend: str, transport: Optional[str], rank: int, world: int, timeout: float) -> None:
    """Makes a process group for links where they are to be carried by torch. Collective over the default group, which
    exists; every rank calls it with its own transport.

    :param backend: that of the default group
    :raises ValueError: not every rank has chosen this transport
    """
    global _group
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    store = c10d._get_default_store()
    key = rendezvous.new_key(store, "sar/transport", rank)
    store.set(f"{key}/{rank}", transport or "auto")
    if transport != NAME:
        return
    wait = datetime.timedelta(seconds=timeout)
    for other in range(world):
        try:
            store.wait([f"{key}/{other}"], wait)
        except RuntimeError as error:
            raise RendezvousError(f"rank {other} did not come within {timeout:g} s: {error}") from error
        chosen = store.get(f"{key}/{other}").decode()
        if chosen != NAME:
            raise ValueError(
                f"SAR_TRANSPORT=torch here and {chosen} on rank {other}: set it on every worker, or on none"
            )
    try:
        _group = dist.new_group(backend=backend if backend in CPU_BACKENDS else DEFAULT_BACKEND, timeout=wait)
    except RuntimeError as error:
        raise RendezvousError(f"torch.distributed could not make a group for SAR_TRANSPORT=torch: {error}") from error
    if not transports.registered(NAME):
        transports.register(NAME, _open)


def release() -> None:
    """Ends the process group of a session that is closed, and the threads that wait for operations in it."""
    global _group, _worker
    group, worker = _group, _worker
    _group = _worker = None
    if group is None:
        return
    if worker is None or worker.closed.wait(_CLOSE_SECONDS) or _interrupt(group, worker):
        torch.distributed.destroy_process_group(group)


def _interrupt(group: Any, worker: _Worker) -> bool:
    """Ends operations that a failed session has left. Says whether that worked: gloo ends all of a group when one of
    them is not done in time, and other backends offer nothing."""
    if torch.distributed.get_backend(group) != "gloo":
        return False
    peer = (torch.distributed.get_rank(group) + 1) % torch.distributed.get_world_size(group)
    try:
        never: Any = torch.distributed.irecv(torch.empty(1), peer, group, _UNUSED_TAG)
        never.wait(datetime.timedelta(milliseconds=1))
    except Exception:  # that it was not done, or the group had failed before
        pass
    return worker.closed.wait(_INTERRUPT_SECONDS)


def _open(rank: int, world: int, done: transports.Done) -> _Worker:
    global _worker
    if _group is None or torch.distributed.get_world_size(_group) != world:
        raise RuntimeError("it is made by sar.initialize_comms for each worker's own session alone")
    _worker = _Worker(_group, done)
    return _worker


class _Message:
    """A tensor over memory of the engine's, until its request is done."""

    def __init__(self, address: int, size: int, request: int) -> None:
        self.tensor: Any = torch.frombuffer((ct.c_uint8 * size).from_address(address), dtype=torch.uint8)
        self.request = request
        self.work: Any = None


class _Worker:
    def __init__(self, group: Any, done: transports.Done) -> None:
        self.group, self.done = group, done
        self.closed = threading.Event()
        self.posted: queue.SimpleQueue[Optional[Tuple[_Link, bool, Optional[_Message]]]] = queue.SimpleQueue()
        threading.Thread(target=self._issue, name="sar-torch", daemon=True).start()

    def connect(self, peer: int, send_tag: int, receive_tag: int) -> _Link:
        return _Link(self, peer, send_tag, receive_tag)

    def close(self) -> None:
        self.posted.put(None)
        self.closed.set()

    def _issue(self) -> None:
        for link, sends, message in iter(self.posted.get, None):
            link.issue(sends, message)


class _Link:
    def __init__(self, worker: _Worker, peer: int, send_tag: int, receive_tag: int) -> None:
        self.worker, self.peer, self.tags = worker, peer, (receive_tag, send_tag)
        self.ended = False
        self.issued: List[queue.SimpleQueue[Optional[_Message]]] = []
        for way in ("receive", "send"):
            self.issued.append(queue.SimpleQueue())
            name = f"sar-torch-{way}-{peer}"
            threading.Thread(target=self._wait, args=(self.issued[-1],), name=name, daemon=True).start()

    def send(self, address: int, size: int, request: int) -> None:
        self.worker.posted.put((self, True, _Message(address, size, request)))

    def receive(self, address: int, size: int, request: int) -> None:
        self.worker.posted.put((self, False, _Message(address, size, request)))

    def disconnect(self) -> None:
        self.ended = True
        for sends in (False, True):
            self.worker.posted.put((self, sends, None))

    def issue(self, sends: bool, message: Optional[_Message]) -> None:
        """Begins an operation, on the thread that begins all of them."""
        if message is None:
            self.issued[sends].put(None)
        elif self.ended:
            self.worker.done(message.request, transports.ERR_CLOSED, "")
        else:
            begin = torch.distributed.isend if sends else torch.distributed.irecv
            try:
                message.work = begin(message.tensor, self.peer, self.worker.group, self.tags[sends])
                self.issued[sends].put(message)
            except Exception as error:  # the peer is gone, or the group
                self.worker.done(message.request, transports.ERR_PEER_LOST, str(error))

    def _wait(self, issued: queue.SimpleQueue[Optional[_Message]]) -> None:
        for message in iter(issued.get, None):
            try:
                message.work.wait(_FOREVER)
                status, text = transports.OK, ""
            except Exception as error:
                status, text = transports.ERR_PEER_LOST, str(error)
            message.work = message.tensor = None  # before its memory is used again
            self.worker.done(message.request, status, text)
