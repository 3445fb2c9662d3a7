"""Workers, and those of this host: started together, signalled, ended."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any

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
Outputs = Callable[["Worker"], "tuple[Deliver, Deliver]"]
"""What takes the two output streams of a worker."""


class Worker:
    """One rank, wherever it runs, and the child of this process by which it runs."""

    def __init__(self, rank: str) -> None:
        self.rank = rank
        self.errors: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended_at: float | None = None
        self.code: int | None = None
        """The exit code, negative for a signal as ``subprocess`` has it."""
        self.why = ""
        """Why it counts as ended, where nobody could see it end."""
        self.stopped_by: set[int] = set()
        self.process: subprocess.Popen[bytes] | None = None
        self.pipes: list[asyncio.BaseTransport] = []
        self.tasks: list[asyncio.Task[None]] = []
        """They end when all that the worker prints has been handed on."""

    async def start(self, output: Outputs) -> None:
        raise NotImplementedError

    def signal(self, number: int) -> None:
        """Signals the worker and its children, also where the worker itself is gone."""
        raise NotImplementedError

    def poll(self) -> None:
        """Notes whether the worker has ended."""
        raise NotImplementedError

    async def close(self) -> None:
        """Kills it if it still runs, and waits until it has ended."""
        if self.process is None:
            return
        if self.code is None:
            self.signal(signal.SIGKILL)
        for pipe in self.pipes:
            pipe.close()
        if not await ends_within(TERMINATE_SECONDS + 3 * DRAIN_SECONDS, self.process):
            self.process.kill()
            self.process.wait()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def read(self, source: IO[bytes]) -> asyncio.StreamReader:
        """Reads from a pipe, at most until :meth:`close`."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), source
        )
        self.pipes.append(transport)
        return reader

    def ended(self, code: int) -> None:
        """Notes how the worker has ended, unless it counts as ended already."""
        if self.code is None:
            self.code, self.ended_at = code, time.monotonic()
            self.over.set_result(None)

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


class Local(Worker):
    """A worker of this host."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], seat: Seat) -> None:
        super().__init__(environment.get("RANK", "0"))
        self.command, self.environment, self.seat = list(command), {**environment, **seat.variables()}, seat

    async def start(self, output: Outputs) -> None:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = spawn(self.command, self.seat, env=self.environment, **pipes)
        assert self.process.stdout and self.process.stderr
        for stream, deliver in zip((self.process.stdout, self.process.stderr), output(self)):
            self.tasks.append(asyncio.create_task(hand_on(await self.read(stream), deliver)))

    def signal(self, number: int) -> None:
        if self.code is None and self.process:
            signal_group(self.process.pid, number)

    def poll(self) -> None:
        process = self.process
        if self.code is None and process and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self.signal(signal.SIGKILL)  # children it left; before it is reaped its group's number is nobody else's
            self.ended(process.wait())


async def hand_on(reader: asyncio.StreamReader, deliver: Deliver) -> None:
    """Delivers what a stream carries as it comes, b"" at the end."""
    try:
        while data := await reader.read(1 << 16):
            deliver(data)
    finally:
        deliver(b"")


async def ends_within(seconds: float, process: subprocess.Popen[bytes]) -> bool:
    """Whether a process ends within so many seconds."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return process.poll() is not None


def spawn(command: Sequence[str], seat: Seat | None = None, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process that the kernel ends if this one dies, even by SIGKILL.

    :param options: of ``subprocess.Popen``
    """
    parent, libc = os.getpid(), ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # which has died before the line above
            os._exit(1)
        if seat is not None and seat.cores is not None:
            os.sched_setaffinity(0, seat.cores)

    # a process group of its own: signals reach its children too, and keys typed at the terminal the launcher alone
    return subprocess.Popen(command, preexec_fn=before_exec, start_new_session=True, **options)


def signal_group(leader: int, number: int) -> None:
    """Signals a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)
