"""Workers, and those of this host: started together, signalled, ended."""

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
from typing import IO

from .binding import Seat

TERMINATE_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""
DRAIN_SECONDS = 1.0
"""How long output is awaited after its worker ended: a child of it may hold the pipe."""

_PR_SET_PDEATHSIG = 1
_KEPT_LINES = 400  # of each worker's stderr, for the closing report
# How a traceback names the exception of a worker that only reports another's failure. What follows may be long: a
# RemoteError carries the other's whole traceback, so that the last line is that of the cause.
_ECHO = re.compile(
    rb"(?:\w+\.)*(?:PeerLostError|RemoteError|DeadlineError|ScheduleError|RendezvousError|KeyboardInterrupt)\b"
)

Deliver = Callable[[bytes], None]


class Worker:
    """One rank, wherever it runs."""

    def __init__(self, rank: str) -> None:
        self.rank = rank
        self.errors: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self.ended_at: float | None = None
        self.code: int | None = None
        """The exit code, negative for a signal as ``subprocess`` has it."""
        self.why = ""
        """Why it counts as ended, where nobody could see it end."""
        self.stopped_by: set[int] = set()

    def signal(self, number: int) -> None:
        """Signals the worker and its children, also where the worker itself is gone."""
        raise NotImplementedError

    def poll(self) -> bool:
        """Whether the worker has ended. Notes when and how."""
        return self.code is not None

    def ended(self, code: int) -> None:
        self.code, self.ended_at = code, time.monotonic()

    def stop(self, number: int) -> None:
        """A signal whose consequence is not the worker's own failure."""
        self.stopped_by.add(number)
        self.signal(number)

    @property
    def exit_code(self) -> int:
        code = self.code or 0
        return code if code >= 0 else 128 - code

    def failed_first_hand(self) -> bool:
        """Whether the worker failed by itself, rather than because it was stopped or lost a peer."""
        if not self.code or -self.code in self.stopped_by:
            return False
        return self.code < 0 or not any(map(_ECHO.match, self.errors))

    def how(self) -> str:
        """How it ended."""
        code = self.code or 0
        if self.why:
            return self.why
        if code < 0:
            known = f"was killed by signal {-code} ({signal.strsignal(-code)})"
            if -code == signal.SIGBUS:
                known += ", as when a mapped file becomes shorter or its disk cannot be read (Config.features)"
            return known
        return f"ended with exit code {code}"

    def story(self) -> bytes:
        """Its last traceback, or the last lines it wrote to stderr."""
        lines = list(self.errors)
        begins = [i for i, line in enumerate(lines) if line.startswith(b"Traceback ")]
        return b"".join(lines[begins[-1] :] if begins else lines[-10:])


class _Process(Worker):
    """A worker that is a child of this process."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], seat: Seat) -> None:
        super().__init__(environment.get("RANK", "0"))
        self.process = subprocess.Popen(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=in_child(os.getpid(), seat),
            start_new_session=True,  # its own process group: signals reach its children too
        )

    def signal(self, number: int) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def poll(self) -> bool:
        if self.code is None:
            if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
            self.signal(signal.SIGKILL)  # children it left; before it is reaped its group's number is nobody else's
            self.ended(self.process.wait())
        return True


def in_child(parent: int, seat: Seat | None = None) -> Callable[[], None]:
    """What a child does before it becomes what it is to run."""
    libc = ctypes.CDLL(None, use_errno=True)

    def before_exec() -> None:
        # The kernel ends the worker if the launcher dies, even by SIGKILL. It may have died before this line.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if seat is not None and seat.cores is not None:
            os.sched_setaffinity(0, seat.cores)

    return before_exec


class Pipe:
    """One output stream of a child. What it carries is delivered as it comes, b"" at the end."""

    def __init__(self, source: IO[bytes] | None, deliver: Deliver) -> None:
        assert source is not None
        self.source, self.deliver = source, deliver
        self.fileno, self.close = source.fileno, source.close

    def read(self) -> bool:
        """Delivers what is there. False at the end of the stream."""
        data = os.read(self.fileno(), 1 << 16)
        self.deliver(data)
        return bool(data)


class Local:
    """The workers of this host."""

    drain_seconds = DRAIN_SECONDS

    def __init__(self, command: Sequence[str], environments: Sequence[dict[str, str]], seats: Sequence[Seat]) -> None:
        self.command, self.environments, self.seats = command, environments, seats
        self.workers: list[Worker] = []

    def start(self, output: Callable[[Worker], tuple[Deliver, Deliver]]) -> list[Pipe]:
        """Starts the workers, and returns what has to be read of them."""
        pipes = []
        for environment, seat in zip(self.environments, self.seats):
            worker = _Process(self.command, {**environment, **seat.variables()}, seat)
            self.workers.append(worker)
            out, err = output(worker)
            pipes += [Pipe(worker.process.stdout, out), Pipe(worker.process.stderr, err)]
        return pipes

    def tick(self) -> bool:
        """To be called several times a second. Says whether it is in a hurry to be called again."""
        return False

    def signal(self, rank: int, number: int) -> None:
        """Signals one worker."""
        for worker in self.workers:
            if int(worker.rank) == rank and not worker.poll():
                worker.signal(number)

    def close(self) -> None:
        """Kills those who still run."""
        for worker in self.workers:
            if not worker.poll():
                worker.signal(signal.SIGKILL)
        while not all([worker.poll() for worker in self.workers]):
            time.sleep(0.005)
