"""What ``sar launch`` and its agent on another host say to each other, over the standard streams of ssh.

Lines of JSON. From the launcher: ``order``, where to work and in which environment; ``start``, the workers; ``signal``
for a ``rank``. From the agent: ``ready``, it has done what the order says; ``trouble``, it cannot; ``stdout`` or
``stderr`` of a ``rank``; how it ``ended``. An empty line is a sign of life.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable
from typing import IO, Any, Callable

GREETING = b"\0sar agent\n"
"""Comes before the agent's first message, and after whatever a login shell prints."""

PING_SECONDS = 5.0
SILENT_SECONDS, PATIENT_SECONDS = 60.0, 600.0
"""A host, and to its agent the launcher, that has not been heard of for so long is lost: a machine without power says
nothing more. A launcher may be stopped at its terminal for a while."""

_LONGEST = 16 << 20  # bytes of a message, and of what comes before the greeting
_MAX_UNSENT = 1 << 20  # when so much waits to be sent, workers that write more have to wait too
_CHUNK = 1 << 16


class ChannelError(Exception):
    """The other side is gone, silent, or says what makes no sense."""


async def open_reader(source: IO[bytes]) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    """Reads from a pipe or a socket. To close the transport ends the stream."""
    reader = asyncio.StreamReader(_LONGEST)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), source
    )
    return reader, transport


async def carry(
    source: IO[bytes], deliver: Callable[[bytes], None], ready: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Delivers what a stream carries as it comes, b"" at the end.

    :param ready: waits until more can be delivered
    """
    reader, transport = await open_reader(source)
    try:
        while data := await reader.read(_CHUNK):
            deliver(data)
            if ready is not None:
                await ready()
    finally:
        deliver(b"")
        transport.close()


class Channel:
    """Messages in both directions. Nothing blocks: what cannot be written yet is kept. Asyncio's own way to write to a
    pipe takes a socket that is read as well, which sshd gives to a command, for one that was closed."""

    def __init__(self, reader: asyncio.StreamReader, target: int, silent: float = SILENT_SECONDS) -> None:
        self.reader, self.target, self.silent = reader, target, silent
        self.quiet = 0.0  # seconds in which nothing was heard; those of a process that was stopped do not count
        self.unsent = bytearray()
        os.set_blocking(target, False)

    def send(self, **message: Any) -> None:
        """Sends a message, or as much of it as there is room for; the rest follows."""
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        if self.target >= 0:
            self.unsent += data
            self._flush()

    def close(self) -> None:
        """Sends no more, so that what is written to may be closed."""
        if self.target >= 0:
            asyncio.get_running_loop().remove_writer(self.target)
            self.target = -1

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_writer(self.target)
        try:
            while self.unsent:
                del self.unsent[: os.write(self.target, self.unsent[:_CHUNK])]
        except BlockingIOError:
            loop.add_writer(self.target, self._flush)
        except OSError:
            self.unsent.clear()  # who reads finds out that the other side is gone

    async def flushed(self, most: int = _MAX_UNSENT) -> None:
        """Waits until no more than so many bytes are to be sent."""
        while len(self.unsent) > most:
            await asyncio.sleep(0.02)

    async def greeted(self) -> bytes:
        """Waits for the agent's greeting, and returns what came before it.

        :raises ChannelError: there is none
        """
        try:
            return (await self.reader.readuntil(GREETING))[: -len(GREETING)]
        except asyncio.LimitOverrunError:
            raise ChannelError("something else than the agent answers") from None
        except (asyncio.IncompleteReadError, OSError):
            raise ChannelError("the connection has ended") from None

    async def receive(self) -> dict[str, Any]:
        """The next message that says more than that the other side lives.

        :raises ChannelError: the connection has ended, or carries something else
        """
        line = b"\n"
        while line == b"\n":
            try:
                line = await self.reader.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                raise ChannelError(f"a message came of more than {_LONGEST} bytes") from None
            except (asyncio.IncompleteReadError, OSError):
                raise ChannelError("the connection has ended") from None
            self.quiet = 0.0
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise ChannelError(f"something else than a message came: {line[:80]!r}")
        return message

    async def keep(self) -> None:
        """Tells the other side again and again that this one lives. Ends the reading where nothing is heard of it."""
        while self.quiet < self.silent:
            await asyncio.sleep(PING_SECONDS)
            self.quiet += PING_SECONDS
            self.write(b"\n")
        self.reader.set_exception(ChannelError(f"nothing has been heard for {self.silent:g} s"))
