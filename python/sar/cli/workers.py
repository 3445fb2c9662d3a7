"""Worker processes: started together, their output merged line by line, ended together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

_PR_SET_PDEATHSIG = 1
_TERMINATE_SECONDS = 5.0  # from SIGTERM to SIGKILL
_DRAIN_SECONDS = 1.0  # how long output is awaited after its worker ended (a child of it may hold the pipe)
_LONGEST_LINE = 1 << 16
_KEPT_LINES = 400  # of each worker's stderr, for the closing report
# How a traceback names the exception of a worker that only reports another's failure. What follows may be long: a
# RemoteError carries the other's whole traceback, so that the last line is that of the cause.
_ECHO = re.compile(
    rb"(?:\w+\.)*(?:PeerLostError|RemoteError|DeadlineError|ScheduleError|RendezvousError|KeyboardInterrupt)\b"
)


# How torch.distributed begins the lines of a traceback that it repeats.
_TORCH_PREFIX = re.compile(rb"^\[rank\d+\]: ?")


class _Worker:
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


class _Lines:
    """Bytes of one pipe, handed on as whole lines with a prefix."""

    def __init__(self, source: IO[bytes], target: IO[bytes], prefix: bytes, keep: deque[bytes] | None) -> None:
        self.source, self.target, self.prefix, self.keep = source, target, prefix, keep
        self.partial = b""

    def read(self) -> bool:
        """Handles what is there. False at the end of the stream."""
        data = os.read(self.source.fileno(), 1 << 16)
        whole, newline, self.partial = (self.partial + data).rpartition(b"\n")
        if len(self.partial) > _LONGEST_LINE:
            whole, newline, self.partial = whole + newline + self.partial, b"\n", b""
        if newline:
            self._emit(whole.split(b"\n"))
        if not data and self.partial:
            self._emit([self.partial])
            self.partial = b""
        return bool(data)

    def _emit(self, lines: list[bytes]) -> None:
        # What a terminal would show of a line rewritten by carriage returns: its last state.
        shown = [line.rstrip(b"\r").rsplit(b"\r", 1)[-1] + b"\n" for line in lines]
        if self.keep is not None:
            self.keep.extend(_TORCH_PREFIX.sub(b"", line) for line in shown)
        self.target.write(b"".join(self.prefix + line for line in shown))
        self.target.flush()


class Ended(NamedTuple):
    """How a group of workers ended."""

    code: int
    """0, or the exit code of the worker that failed first, or 128 + the signal that it died of or that we got."""
    interrupted: bool
    """Whether a signal to us ended them."""


def run_workers(
    command: Sequence[str], environments: Sequence[dict[str, str]], *, grace: float = 10.0, prefix: bool = True
) -> Ended:
    """Runs ``command`` once per environment until all have ended. SIGINT, SIGTERM and SIGHUP go on to the workers."""
    return _Group(command, environments, grace, prefix).run()


class _Group:
    def __init__(
        self, command: Sequence[str], environments: Sequence[dict[str, str]], grace: float, prefix: bool
    ) -> None:
        self.grace = grace
        self.workers: list[_Worker] = []
        self.selector = selectors.DefaultSelector()
        self.received: list[int] = []  # signals to us
        self.stop_at: float | None = None  # when those still running get SIGTERM
        self.kill_at: float | None = None  # when they get SIGKILL
        width = max(len(e.get("RANK", "0")) for e in environments)
        self._catch_signals()
        try:
            for e in environments:
                worker = _Worker(e.get("RANK", "0"), command, e)
                self.workers.append(worker)
                label = f"[{worker.rank.rjust(width)}] ".encode() if prefix else b""
                out, err = worker.process.stdout, worker.process.stderr
                assert out is not None and err is not None
                for lines in (
                    _Lines(out, sys.stdout.buffer, label, None),
                    _Lines(err, sys.stderr.buffer, label, worker.errors),
                ):
                    self.selector.register(lines.source, selectors.EVENT_READ, lines)
        except BaseException:
            self._finish()
            raise

    def _catch_signals(self) -> None:
        # A signal wakes select() through this pipe; the handler itself only notes the number.
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        os.set_blocking(self.wake_read, False)
        self.selector.register(self.wake_read, selectors.EVENT_READ, None)
        self.old_wakeup = signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        self.old_handlers = {
            number: signal.signal(number, lambda n, frame: self.received.append(n))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        self.old_handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda n, frame: None)

    def run(self) -> Ended:
        try:
            handled = 0
            while not all(worker.poll() for worker in self.workers):
                self._pump(self._timeout())
                while handled < len(self.received):
                    self._forward(self.received[handled], handled)
                    handled += 1
                self._after_failure()
            self._drain()
            return Ended(self._outcome(), bool(self.received))
        finally:
            self._finish()

    def _timeout(self) -> float:
        due = [t for t in (self.stop_at, self.kill_at) if t is not None]
        return min([1.0, *(max(0.0, t - time.monotonic()) for t in due)])

    def _pump(self, seconds: float) -> None:
        """Waits for output, an ended worker or a signal, and passes output on."""
        for key, _ in self.selector.select(seconds):
            if key.data is None:
                os.read(self.wake_read, 1 << 10)
            elif not key.data.read():
                self.selector.unregister(key.fileobj)
                key.data.source.close()

    def _forward(self, number: int, before: int) -> None:
        """Forwards the first signal as it is. A second one asks the workers to end, a third kills them."""
        send = (number, signal.SIGTERM, signal.SIGKILL)[min(before, 2)]
        for worker in self.workers:
            if not worker.poll():
                worker.stop(send)
        if self.stop_at is None:
            self.stop_at = time.monotonic() + self.grace

    def _after_failure(self) -> None:
        now = time.monotonic()
        running = [w for w in self.workers if not w.poll()]
        failed = [w for w in self.workers if w.code]
        if failed and running and self.stop_at is None and self.kill_at is None:
            say(f"rank {failed[0].rank} {_how(failed[0])}; the others have {self.grace:g} s to report")
            self.stop_at = now + self.grace
        if self.stop_at is not None and now >= self.stop_at:
            self.stop_at, self.kill_at = None, now + _TERMINATE_SECONDS
            for worker in running:
                worker.stop(signal.SIGTERM)
        elif self.kill_at is not None and now >= self.kill_at:
            self.kill_at = now + _TERMINATE_SECONDS
            for worker in running:
                worker.stop(signal.SIGKILL)

    def _drain(self) -> None:
        end = time.monotonic() + _DRAIN_SECONDS
        while len(self.selector.get_map()) > 1 and time.monotonic() < end:
            self._pump(0.05)

    def _outcome(self) -> int:
        if self.received:
            return 128 + self.received[0]
        failed = sorted((w for w in self.workers if w.code), key=lambda w: w.ended_at or 0.0)
        if not failed:
            return 0
        cause = next((w for w in failed if w.failed_first_hand()), failed[0])
        others = [w.rank for w in self.workers if w is not cause]
        say(
            f"rank {cause.rank} {_how(cause)}"
            + (f"; ranks {', '.join(others)} were stopped or had ended" if others else "")
        )
        story = cause.story()
        if story and len(self.workers) > 1:
            sys.stderr.buffer.write(b"".join(b"    " + line + b"\n" for line in story.rstrip().split(b"\n")))
            sys.stderr.flush()
        return cause.exit_code

    def _finish(self) -> None:
        for worker in self.workers:
            if not worker.poll():
                worker.signal(signal.SIGKILL)
                worker.process.wait()
        for number, handler in self.old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.old_wakeup)
        for key in list(self.selector.get_map().values()):
            if key.data is not None:
                key.data.source.close()
        self.selector.close()
        os.close(self.wake_read)
        os.close(self.wake_write)


def _how(worker: _Worker) -> str:
    code = worker.code or 0
    if code < 0:
        known = f"was killed by signal {-code} ({signal.strsignal(-code)})"
        if -code == signal.SIGBUS:
            known += ", as when a mapped file becomes shorter or its disk cannot be read (Config.features)"
        return known
    return f"ended with exit code {code}"


def say(text: str) -> None:
    """A line of the launcher itself."""
    sys.stderr.flush()
    sys.stderr.buffer.write(f"sar launch: {text}\n".encode())
    sys.stderr.buffer.flush()
