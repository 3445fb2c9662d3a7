"""The agent of ``sar launch`` on another host, started there over ssh: runs the workers of that host.

It decides nothing: it passes on output and signals, and reports how workers end. When the launcher, or the connection
to it, is gone, it ends its workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import sar
from sar.distributed.network import free_port

from .binding import seats
from .channel import (
    ENDED,
    ORDER,
    OUTPUT,
    PATIENT_SECONDS,
    READY,
    SIGNAL,
    START,
    STDERR,
    STDOUT,
    TROUBLE,
    Channel,
    ChannelError,
    Frame,
)
from .workers import DRAIN_SECONDS, TERMINATE_SECONDS, Local, Worker

_PATIENCE = 300.0  # for the launcher to say what to do: it waits for the slowest host
_MAX_UNSENT = 1 << 20  # when so much waits to be sent, workers that write more have to wait too


class _Agent:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.frames: deque[Frame] = deque()  # that have come and are not handled yet
        self.selector = selectors.DefaultSelector()
        self.selector.register(channel, selectors.EVENT_READ)
        self.received: list[int] = []
        wake_read, wake_write = os.pipe()
        for descriptor in (wake_read, wake_write):
            os.set_blocking(descriptor, False)
        self.wake = wake_read
        self.selector.register(wake_read, selectors.EVENT_READ)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda n, frame: self.received.append(n))
        signal.signal(signal.SIGCHLD, lambda n, frame: None)

    def await_frame(self, kind: bytes) -> Any:
        """The content of the next frame, which is of this kind."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and not self.received:
            for key, _ in self.selector.select(1.0):
                if key.fileobj is self.channel:
                    self.frames += self.channel.receive()
            while self.frames:
                frame = self.frames.popleft()
                if frame.kind == kind:
                    return json.loads(frame.payload)
            self.channel.tick()
        raise ChannelError("the launcher has not said what to do")

    def prepare(self, order: dict[str, Any]) -> dict[str, Any]:
        """Goes where the workers are to work, and returns what they and the launcher have to know of this host.

        :raises ValueError: something is not here as the launcher expects it
        """
        if order["version"] != sar.__version__:
            raise ValueError(
                f"SAR {sar.__version__} is installed here and {order['version']} at the launcher: "
                "install one version on every host"
            )
        try:
            os.chdir(order["directory"])
        except OSError as error:
            raise ValueError(
                f"cannot work in {order['directory']}: {error.strerror}. Start where all hosts have the same "
                "directory, such as on a shared file system, or name one with --directory"
            ) from None
        os.environ.update(order["environment"])
        self.seats = seats(order["bind"], order["workers"], order["threads"])
        return {"port": free_port() if order["port"] else 0}

    def run(self, command: list[str], places: list[dict[str, str]]) -> None:
        """Runs the workers until all have ended, or until the launcher is gone."""
        self.site = Local(command, [{**os.environ, **place} for place in places], self.seats)
        try:
            for reader in self.site.start(self.output):
                self.selector.register(reader, selectors.EVENT_READ, reader)
            self.serve()
        except ChannelError:
            for worker in self.site.workers:
                worker.signal(signal.SIGTERM)
            end = time.monotonic() + TERMINATE_SECONDS
            while not all([worker.poll() for worker in self.site.workers]) and time.monotonic() < end:
                time.sleep(0.02)
            raise
        finally:
            self.site.close()

    def output(self, worker: Worker) -> tuple[Callable[[bytes], None], Callable[[bytes], None]]:
        """Where the two output streams of a worker go."""

        def send(stream: bytes, data: bytes) -> None:
            if data:
                self.channel.send(OUTPUT, int(worker.rank), stream + data)

        return partial(send, STDOUT), partial(send, STDERR)

    def serve(self) -> None:
        told: set[Worker] = set()
        drained = None  # until when output is awaited after the last worker has ended
        while drained is None or len(self.selector.get_map()) > 2 and time.monotonic() < drained:
            self.pump(0.02 if self.channel.tick() else 0.2)
            if self.received:
                raise ChannelError(f"the agent was stopped by signal {self.received[0]}")
            for worker in self.site.workers:
                if worker not in told and worker.poll():
                    told.add(worker)
                    self.channel.send(ENDED, int(worker.rank), str(worker.code).encode())
            if drained is None and len(told) == len(self.site.workers):
                drained = time.monotonic() + DRAIN_SECONDS
        end = time.monotonic() + DRAIN_SECONDS
        while self.channel.tick() and time.monotonic() < end:
            time.sleep(0.01)

    def pump(self, seconds: float) -> None:
        """Waits for output, a signal from the launcher or an ended worker."""
        full = len(self.channel.unsent) > _MAX_UNSENT
        for key, _ in self.selector.select(0.02 if full else seconds):
            if key.fileobj is self.channel:
                self.frames += self.channel.receive()
            elif key.fileobj == self.wake:
                os.read(self.wake, 1 << 10)
            elif not full and not key.data.read():
                self.selector.unregister(key.fileobj)
                key.data.close()
        while self.frames:
            frame = self.frames.popleft()
            if frame.kind == SIGNAL:
                self.site.signal(frame.rank, int(frame.payload))


def main() -> int:
    # What anything here prints must not get among the frames.
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    agent = _Agent(Channel(source, target, silent=PATIENT_SECONDS))
    try:
        agent.channel.greet()
        order = agent.await_frame(ORDER)
        try:
            ready = agent.prepare(order)
        except (ValueError, OSError) as error:
            agent.channel.send(TROUBLE, 0, str(error).encode())
            return 1
        agent.channel.send(READY, 0, json.dumps(ready).encode())
        agent.run(order["command"], agent.await_frame(START))
    except ChannelError as error:
        with contextlib.suppress(ChannelError):  # it may be the channel itself
            agent.channel.send(TROUBLE, 0, str(error).encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
