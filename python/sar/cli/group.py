"""The workers of a job: started together, their output merged, ended together."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from .lines import Lines, say
from .workers import Worker, how

_TERMINATE_SECONDS = 5.0  # from SIGTERM to SIGKILL
_DRAIN_SECONDS = 1.0  # how long output is awaited after its worker ended (a child of it may hold the pipe)


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
        self.workers: list[Worker] = []
        self.selector = selectors.DefaultSelector()
        self.received: list[int] = []  # signals to us
        self.stop_at: float | None = None  # when those still running get SIGTERM
        self.kill_at: float | None = None  # when they get SIGKILL
        width = max(len(e.get("RANK", "0")) for e in environments)
        self._catch_signals()
        try:
            for e in environments:
                worker = Worker(e.get("RANK", "0"), command, e)
                self.workers.append(worker)
                label = f"[{worker.rank.rjust(width)}] ".encode() if prefix else b""
                out, err = worker.process.stdout, worker.process.stderr
                assert out is not None and err is not None
                for lines in (
                    Lines(out, sys.stdout.buffer, label, None),
                    Lines(err, sys.stderr.buffer, label, worker.errors),
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
            say(f"rank {failed[0].rank} {how(failed[0])}; the others have {self.grace:g} s to report")
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
            f"rank {cause.rank} {how(cause)}"
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
