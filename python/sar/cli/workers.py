"""A worker process: started, signalled, and how it ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence

_PR_SET_PDEATHSIG = 1
_KEPT_LINES = 400  # of each worker's stderr, for the closing report
# How a traceback names the exception of a worker that only reports another's failure. What follows may be long: a
# RemoteError carries the other's whole traceback, so that the last line is that of the cause.
_ECHO = re.compile(
    rb"(?:\w+\.)*(?:PeerLostError|RemoteError|DeadlineError|ScheduleError|RendezvousError|KeyboardInterrupt)\b"
)


class Worker:
    def __init__(self, rank: str, command: Sequence[str], environment: dict[str, str]) -> None:
        self.rank = rank
        self.process = subprocess.Popen(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_in_child(os.getpid()),
            start_new_session=True,  # its own process group: signals reach its children too
        )
        self.errors: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self.ended_at: float | None = None
        self.code: int | None = None
        self.stopped_by: set[int] = set()

    def signal(self, number: int) -> None:
        """Signals the worker and its children, also where the worker itself is gone."""
        if self.code is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def stop(self, number: int) -> None:
        """A signal whose consequence is not the worker's own failure."""
        self.stopped_by.add(number)
        self.signal(number)

    def poll(self) -> bool:
        """Whether the worker has ended. Notes when and how, and ends children that it left behind."""
        if self.code is None:
            if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
            self.signal(signal.SIGKILL)  # before it is reaped: until then its group's number is nobody else's
            self.code, self.ended_at = self.process.wait(), time.monotonic()
        return True

    @property
    def exit_code(self) -> int:
        code = self.code or 0
        return code if code >= 0 else 128 - code

    def failed_first_hand(self) -> bool:
        """Whether the worker failed by itself, rather than because it was stopped or lost a peer."""
        if not self.code or -self.code in self.stopped_by:
            return False
        return self.code < 0 or not any(map(_ECHO.match, self.errors))

    def story(self) -> bytes:
        """Its last traceback, or the last lines it wrote to stderr."""
        lines = list(self.errors)
        begins = [i for i, line in enumerate(lines) if line.startswith(b"Traceback ")]
        return b"".join(lines[begins[-1] :] if begins else lines[-10:])


def _in_child(parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def before_exec() -> None:
        # The kernel ends the worker if the launcher dies, even by SIGKILL. It may have died before this line.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec


def how(worker: Worker) -> str:
    code = worker.code or 0
    if code < 0:
        known = f"was killed by signal {-code} ({signal.strsignal(-code)})"
        if -code == signal.SIGBUS:
            known += ", as when a mapped file becomes shorter or its disk cannot be read (Config.features)"
        return known
    return f"ended with exit code {code}"
