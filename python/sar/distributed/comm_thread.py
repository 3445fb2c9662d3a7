"""A thread that runs tasks in order, for scripts that overlap their own communication with computation."""

from __future__ import annotations

import functools
import queue
from typing import Any, Callable, NamedTuple, Optional

from sar._engine.communicator import Lane

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
        self.result_queue: queue.Queue[Any] = queue.Queue()
        self._lane = Lane(int, lambda _: None)

    def submit_task(self, task_id: str, task: Task) -> None:
        """Has ``task`` called without arguments once the tasks before it are done.

        :param task_id: a name, for whoever debugs
        :param task: what it returns, unless that is None, is given by :meth:`get_result`
        """
        self._lane.later(functools.partial(self._run, task), self._ended)

    def get_result(self, block: bool = True) -> object:
        """The oldest result not asked for yet; an exception of a task is raised here.

        :param block: wait for it
        :raises queue.Empty: there is none, and ``block`` is false
        """
        result = self.result_queue.get(block=block)
        if isinstance(result, _Raised):
            raise result.error
        return result

    def _run(self, task: Task, _: int) -> None:
        result = task()
        if result is not None:
            self.result_queue.put(result)

    def _ended(self, error: Optional[BaseException]) -> None:
        if error is not None:
            self.result_queue.put(_Raised(error))


comm_thread = CommThread()
"""The thread that all share."""
