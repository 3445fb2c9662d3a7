"""One communicator of a session: the order in which its operations run, and collectives on torch tensors over it."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Iterable, Optional, Sequence, Tuple, TypeVar

import torch
from torch import Tensor

from . import abi, library

T = TypeVar("T")
Done = Callable[[Optional[BaseException]], None]
"""Told when an operation has ended, and of what it raised."""


class Lane:
    """A session of the engine with one queue of operations, which get its handle.

    An asynchronous operation runs on a thread of the lane's own, which starts with the first of them. Others run on
    the thread that calls them, when the asynchronous ones before them are done.
    """

    def __init__(self, open_session: Callable[[], int], close_session: Callable[[int], None]) -> None:
        self._open: Optional[Callable[[], int]] = open_session
        self._close = close_session
        self._handle: Optional[int] = None
        self._queue: queue.SimpleQueue[Optional[Tuple[Callable[[int], None], Done]]] = queue.SimpleQueue()
        self._turn = threading.Lock()  # held while an operation runs
        self._state = threading.Condition()
        self._waiting = 0  # operations that the thread has not ended
        self._thread: Optional[threading.Thread] = None
        self._closed = False

    def open(self) -> int:
        """The handle of the session, which is opened when it is first needed."""
        if self._open is not None:
            handle = self._open()
            self._open = None  # of a process group, which would never go
            with self._state:
                self._handle = handle
                closed = self._closed
            if closed:
                self._close(handle)
        assert self._handle is not None
        return self._handle

    def now(self, operation: Callable[..., T], *arguments: Any) -> T:
        """Runs an operation on this thread, with arguments behind the handle, and returns what it returns."""
        if self._waiting or self._closed:
            with self._state:
                self._check()
                while self._waiting:
                    self._state.wait()
        with self._turn:
            return operation(self.open() if self._handle is None else self._handle, *arguments)

    def later(self, operation: Callable[[int], None], done: Done) -> None:
        """Has an operation run on the lane's thread."""
        with self._state:
            self._check()
            self._waiting += 1
            self._queue.put((operation, done))
            if self._thread is None or not self._thread.is_alive():  # never started, or in the parent of this process
                self._thread = threading.Thread(target=self._work, name="sar-group", daemon=True)
                self._thread.start()

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("the process group was destroyed")

    def close(self) -> None:
        """Closes the session; operations on their way fail."""
        with self._state:
            handle, closed, self._closed = self._handle, self._closed, True
        if not closed:
            self._queue.put(None)
            if handle is not None:
                self._close(handle)

    def _work(self) -> None:
        for operation, done in iter(self._queue.get, None):
            error: Optional[BaseException] = None
            try:
                with self._turn:
                    operation(self.open())
            except BaseException as caught:
                error = caught
            with self._state:
                self._waiting -= 1
                self._state.notify_all()
            done(error)
            del operation, done  # between operations the thread keeps no tensors


# ---- collectives on tensors of any device, dtype and strides ------------------


def all_reduce(handle: int, comm: int, tensor: Tensor, op: str) -> None:
    """``tensor = op over ranks of tensor``, in place; the same bits on every rank."""
    flat = flat_cpu(tensor)
    abi.all_reduce(handle, comm, flat, op)
    give_back(tensor, flat)


def broadcast(handle: int, comm: int, tensor: Tensor, root: int) -> None:
    """Gives every rank the values that ``root`` holds, in place."""
    flat = flat_cpu(tensor)
    abi.broadcast(handle, comm, _carried(flat), root)
    give_back(tensor, flat)


def all_to_all(handle: int, comm: int, recv: Sequence[Tensor], send: Sequence[Tensor]) -> None:
    """``recv[q]`` gets what rank q has as ``send[own rank]``."""
    flats = [flat_cpu(t) for t in recv]
    abi.all_to_all(handle, comm, [_carried(flat_cpu(t)) for t in send], [_carried(flat) for flat in flats])
    for tensor, flat in zip(recv, flats):
        give_back(tensor, flat)


def exchange_pair(
    handle: int, comm: int, send_to: int, send: Optional[Tensor], recv_from: int, recv: Optional[Tensor]
) -> None:
    """Sends to one rank while receiving from another; -1 and None for neither."""
    sent = None if send is None else _carried(flat_cpu(send))
    flat = None if recv is None else flat_cpu(recv)
    abi.exchange_pair(handle, comm, send_to, sent, recv_from, None if flat is None else _carried(flat))
    if recv is not None and flat is not None:
        give_back(recv, flat)


def op_name(op: Any, known: Iterable[str]) -> Optional[str]:
    """The name of a reduction, which is given by name or as a ``torch.distributed.ReduceOp``; ``None`` of another."""
    for name in known:
        if op.lower() == name if isinstance(op, str) else op == getattr(torch.distributed.ReduceOp, name.upper()):
            return name
    return None


def flat_cpu(tensor: Tensor) -> Tensor:
    """One dimension, contiguous, in CPU memory: the tensor's own memory where that is so already."""
    return tensor.detach().to("cpu").contiguous().view(-1)


def _carried(flat: Tensor) -> Tensor:
    """The vector, or its bytes where the engine does not know the dtype; one of a single element may have any
    stride."""
    return flat if library.knows(flat.dtype) else flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def give_back(tensor: Tensor, work: Tensor) -> None:
    """Has a tensor hold what its :func:`flat_cpu` holds now."""
    if tensor.numel() and work.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(work.view(tensor.shape))
    elif tensor.numel():
        # the engine wrote behind torch's back: autograd must notice that a saved tensor changed
        increment = getattr(torch.autograd.graph, "increment_version", None)
        if increment is not None:
            increment(tensor)
