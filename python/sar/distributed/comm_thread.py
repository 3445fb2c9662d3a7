"""A thread that runs tasks in order, for scripts that overlap their own communication with computation."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, NamedTuple, Tuple

Task = Callable[[], Any]


class _Raised(NamedTuple):
    """What a task raised, on its way to whoever asks for the result."""

    error: BaseException


class CommThread:
    """Runs callables on a thread of its own, in the order given; the thread starts with the first of them.

    Collectives of :mod:`sar.comm` and graph operations are numbered in the order in which a worker calls them, so
    every worker must give the same tasks, and must not call collectives meanwhile.
    """

    def __init__(self) -> None:
        self.task_queue: queue.Queue[Tuple[str, Task]] = queue.Queue()
        self.result_queue: queue.Queue[Any] = queue.Queue()
        self._lock = threading.Lock()
        self._process = -1

    def submit_task(self, task_id: str, task: Task) -> None:
        """Has ``task`` called without arguments once the tasks before it are done.

        :param task_id: a name, for whoever debugs
        :param task: what it returns, unless that is None, is given by :meth:`get_result`
        """
        with self._lock:
            if self._process != os.getpid():  # never started, or in the parent of this process
                threading.Thread(target=self._run, name="sar-comm", daemon=True).start()
                self._process = os.getpid()
        self.task_queue.put((task_id, task))

    def get_result(self, block: bool = True) -> Any:
        """The oldest result not asked for yet; an exception of a task is raised here.

        :param block: wait for it
        :raises queue.Empty: there is none, and ``block`` is false
        """
        result = self.result_queue.get(block=block)
        if isinstance(result, _Raised):
            raise result.error
        return result

    def _run(self) -> None:
        while True:
            self._do(*self.task_queue.get())  # a call of its own: between tasks the thread keeps nothing of the last

    def _do(self, _: str, task: Task) -> None:
        try:
            result = task()
        except BaseException as error:
            result = _Raised(error)
        if result is not None:
            self.result_queue.put(result)


comm_thread = CommThread()
"""The thread that all share."""
