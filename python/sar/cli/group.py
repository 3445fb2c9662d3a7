"""All workers of a job: their output merged, ended together when one fails."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .lines import Output, say
from .workers import TERMINATE_SECONDS, Outputs, Worker

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Site(Protocol):
    """A host, and the workers on it."""

    workers: list[Worker]
    tasks: list[asyncio.Task[None]]
    """They end when all output of the workers has been handed on."""
    drain_seconds: float
    """How long that is awaited."""

    def start(self, output: Outputs) -> None: ...

    async def close(self) -> None: ...


class Ended(NamedTuple):
    """How a group of workers ended."""

    code: int
    """0, or the exit code of the worker that failed first, or 128 + the signal that it died of or that we got."""
    interrupted: bool
    """Whether a signal to us ended them."""


class Group:
    """Runs the workers of some hosts until all have ended. SIGINT, SIGTERM and SIGHUP go on to the workers."""

    def __init__(self, sites: Sequence[Site], output: Output, grace: float) -> None:
        self.sites, self.output, self.grace = sites, output, grace
        self.workers: list[Worker] = []
        self.received: list[int] = []  # signals to us
        self.stopping = False  # those still running will be stopped

    async def run(self) -> Ended:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._forward, number)
        try:
            for site in self.sites:
                site.start(self.output)
                self.workers += site.workers
            while running := self._running():
                await asyncio.wait([worker.over for worker in running], return_when=asyncio.FIRST_COMPLETED)
                self._after_failure()
            tasks = [task for site in self.sites for task in site.tasks]
            await asyncio.wait(tasks, timeout=max(site.drain_seconds for site in self.sites))
            return Ended(self._outcome(), bool(self.received))
        finally:
            await asyncio.gather(*(site.close() for site in self.sites))
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

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
