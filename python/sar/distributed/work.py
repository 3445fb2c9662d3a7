"""Runs the operations of a process group, one after the other, and tells torch when they are done."""

from __future__ import annotations

import collections
import queue
import threading
from typing import Any, Callable, Deque, Optional, Tuple

import torch
from torch._C._distributed_c10d import Work as _Work

_FORGETS = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 8)
_REMEMBERED = 8

Operation = Callable[[int], None]
"""What is done with a session of the engine, whose handle it gets."""


class Work(_Work):
    """The handle of an operation."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result
        self._error: Optional[BaseException] = None
        self._done = threading.Event()
        self._settled: torch.futures.Future[None] = torch.futures.Future()

    def finish(self, error: Optional[BaseException] = None) -> None:
        """Called once, when the operation has ended."""
        self._error = error
        self._done.set()
        self._settled.set_result(None)

    def wait(self, timeout: Any = None) -> bool:
        """Returns when the operation is done, and raises what it raised.

        :param timeout: a ``timedelta``; by default, the deadline of the group ends the operation
        """
        if not self._done.wait(timeout.total_seconds() if timeout else None):
            raise RuntimeError(f"an operation of a process group of backend sar was not done within {timeout}")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> Any:
        return self._error

    def result(self) -> Any:
        self.wait()
        return self._result

    def get_future(self) -> Any:
        return self._settled.then(lambda _: self.result())


class Lane:
    """A session of the engine with one queue of operations.

    An asynchronous operation runs on a thread of the lane's own, which starts with the first of them. Others run on
    the thread that calls them, unless asynchronous ones are on their way: then they run after these.
    """

    def __init__(self, open_session: Callable[[], int], close_session: Callable[[int], None]) -> None:
        self._open: Optional[Callable[[], int]] = open_session
        self._close = close_session
        self._handle: Optional[int] = None
        self._queue: queue.SimpleQueue[Optional[Tuple[Operation, Work]]] = queue.SimpleQueue()
        self._turn = threading.Lock()  # held while an operation runs
        self._state = threading.Lock()
        self._waiting = 0  # operations that the thread has not ended
        self._thread: Optional[threading.Thread] = None
        self._closed = False
        # Older versions of torch let go of the Python half of a handle that they give to their own C++ code, and ask
        # it for its future a moment later.
        self._remembered: Deque[Work] = collections.deque(maxlen=_REMEMBERED if _FORGETS else 0)

    def open(self) -> int:
        """The handle of the session, which is opened when it is first needed."""
        if self._open is not None:
            handle = self._open()
            self._open = None  # of the process group, which would never go
            with self._state:
                self._handle = handle
                closed = self._closed
            if closed:
                self._close(handle)
        assert self._handle is not None
        return self._handle

    def run(self, operation: Operation, result: Any, asynchronous: bool) -> Work:
        """Runs an operation, or has it run.

        :param result: what the handle gives as the result
        """
        work = Work(result)
        self._remembered.append(work)
        with self._state:
            if self._closed:
                raise RuntimeError("the process group was destroyed")
            asynchronous = asynchronous or self._waiting > 0
            if asynchronous:
                self._waiting += 1
                self._queue.put((operation, work))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="sar-group", daemon=True)
                    self._thread.start()
        if not asynchronous:
            with self._turn:
                operation(self.open())
            work.finish()
        return work

    def close(self) -> None:
        """Closes the session; operations on their way fail."""
        with self._state:
            handle, closed, self._closed = self._handle, self._closed, True
        if not closed:
            self._queue.put(None)
            if handle is not None:
                self._close(handle)

    def _work(self) -> None:
        for operation, work in iter(self._queue.get, None):
            error: Optional[BaseException] = None
            try:
                with self._turn:
                    operation(self.open())
            except BaseException as caught:
                error = caught
            with self._state:
                self._waiting -= 1
            work.finish(error)
            del operation, work  # between operations the thread keeps no tensors
