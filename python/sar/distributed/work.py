"""Tells torch when an operation of a process group is done."""

from __future__ import annotations

import threading
from typing import Any, Optional

import torch
from torch._C._distributed_c10d import Work as _Work


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
