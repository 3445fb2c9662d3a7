"""All workers of a job: their output merged, ended together when one fails."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple, Protocol

from .lines import Output, say
from .workers import TERMINATE_SECONDS, Deliver, Worker


class Reader(Protocol):
    """Something that has to be read as it comes."""

    def fileno(self) -> int: ...

    def read(self) -> bool:
        """Handles what is there. False at the end of the stream."""

    def close(self) -> None: ...


class Site(Protocol):
    """A host, and the workers on it."""

    workers: list[Worker]
    drain_seconds: float

    def start(self, output: Callable[[Worker], tuple[Deliver, Deliver]]) -> Sequence[Reader]: ...

    def tick(self) -> bool: ...

    def close(self) -> None: ...


class Ended(NamedTuple):
    """How a group of workers ended."""

    code: int
    """0, or the exit code of the worker that failed first, or 128 + the signal that it died of or that we got."""
    interrupted: bool
    """Whether a signal to us ended them."""


class Group:
    """Runs the workers of some hosts until all have ended. SIGINT, SIGTERM and SIGHUP go on to the workers."""

    def __init__(self, sites: Sequence[Site], output: Output, grace: float) -> None:
        self.sites, self.grace = sites, grace
        self.selector = selectors.DefaultSelector()
        self.received: list[int] = []  # signals to us
        self.stop_at: float | None = None  # when those still running get SIGTERM
        self.kill_at: float | None = None  # when they get SIGKILL
        self._catch_signals()
        try:
            for site in sites:
                for reader in site.start(output):
                    self.selector.register(reader, selectors.EVENT_READ, reader)
            self.workers = [worker for site in sites for worker in site.workers]
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
        if any([site.tick() for site in self.sites]):
            return 0.02
        due = [t for t in (self.stop_at, self.kill_at) if t is not None]
        return min([1.0, *(max(0.0, t - time.monotonic()) for t in due)])

    def _pump(self, seconds: float) -> None:
        """Waits for output, an ended worker or a signal, and passes output on."""
        for key, _ in self.selector.select(seconds):
            if key.data is None:
                os.read(self.wake_read, 1 << 10)
            elif not key.data.read():
                self.selector.unregister(key.fileobj)
                key.data.close()

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
            say(f"rank {failed[0].rank} {failed[0].how()}; the others have {self.grace:g} s to report")
            self.stop_at = now + self.grace
        if self.stop_at is not None and now >= self.stop_at:
            self.stop_at, self.kill_at = None, now + TERMINATE_SECONDS
            for worker in running:
                worker.stop(signal.SIGTERM)
        elif self.kill_at is not None and now >= self.kill_at:
            self.kill_at = now + TERMINATE_SECONDS
            for worker in running:
                worker.stop(signal.SIGKILL)

    def _drain(self) -> None:
        end = time.monotonic() + max(site.drain_seconds for site in self.sites)
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
            f"rank {cause.rank} {cause.how()}"
            + (f"; ranks {', '.join(others)} were stopped or had ended" if others else "")
        )
        story = cause.story()
        if story and len(self.workers) > 1:
            sys.stderr.buffer.write(b"".join(b"    " + line + b"\n" for line in story.rstrip().split(b"\n")))
            sys.stderr.flush()
        return cause.exit_code

    def _finish(self) -> None:
        for site in self.sites:
            site.close()
        for number, handler in self.old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.old_wakeup)
        for key in list(self.selector.get_map().values()):
            if key.data is not None:
                key.data.close()
        self.selector.close()
        os.close(self.wake_read)
        os.close(self.wake_write)
