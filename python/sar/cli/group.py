"""All workers of a job: their output merged, ended together when one fails."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple

from .lines import Output, say
from .workers import DRAIN_SECONDS, TERMINATE_SECONDS, Worker

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(NamedTuple):
    """How a group of workers ended."""

    code: int
    """0, or the exit code of the worker that failed first, or 128 + the signal that it died of or that we got."""
    interrupted: bool
    """Whether a signal to us ended them."""


class Group:
    """Runs workers until all have ended. SIGINT, SIGTERM and SIGHUP go on to them, until the loop is closed."""

    def __init__(self, workers: Sequence[Worker], output: Output, grace: float) -> None:
        self.workers, self.output, self.grace = workers, output, grace
        self.received: list[int] = []  # signals to us
        self.stopping = False  # those still running will be stopped

    async def run(self) -> Ended:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._forward, number)
        loop.add_signal_handler(signal.SIGCHLD, self._poll)
        try:
            for worker in self.workers:
                await worker.start(self.output)
            self._poll()  # of those that have ended before the last was started
            while running := self._running():
                self._after_failure()
                await asyncio.wait([worker.over for worker in running], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([task for worker in self.workers for task in worker.tasks], timeout=DRAIN_SECONDS)
            return Ended(self._outcome(), bool(self.received))
        finally:
            await asyncio.gather(*(worker.close() for worker in self.workers))

    def _poll(self) -> None:
        for worker in self.workers:
            worker.poll()

    def _running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.code is None]

    def _forward(self, number: int) -> None:
        """Forwards the first signal as it is. A second one asks the workers to end, a third kills them."""
        send = (number, signal.SIGTERM, signal.SIGKILL)[min(len(self.received), 2)]
        self.received.append(number)
        for worker in self._running():
            worker.stop(send)
        self._stop_later()

    def _after_failure(self) -> None:
        failed = next((worker for worker in self.workers if worker.code), None)
        if failed and self._running() and not self.stopping:
            say(f"rank {failed.rank} {failed.how()}; the others have {self.grace:g} s to report")
            self._stop_later()

    def _stop_later(self) -> None:
        if not self.stopping:
            self.stopping = True
            asyncio.get_running_loop().call_later(self.grace, self._stop, signal.SIGTERM)

    def _stop(self, number: int) -> None:
        for worker in self._running():
            worker.stop(number)
        asyncio.get_running_loop().call_later(TERMINATE_SECONDS, self._stop, signal.SIGKILL)

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
