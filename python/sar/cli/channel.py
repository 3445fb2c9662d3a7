"""What ``sar launch`` and its agent on another host say to each other, over the standard streams of ssh."""

from __future__ import annotations

import os
import select
import struct
import time
from typing import NamedTuple

# From the launcher: where to work and in which environment; the workers; a signal for one; nothing but a sign of life.
ORDER, START, SIGNAL, PING = b"O", b"S", b"!", b"."
# From the agent: it has done what the order says; it cannot; output of a worker; a worker has ended.
READY, TROUBLE, OUTPUT, ENDED = b"R", b"T", b">", b"E"

STDOUT, STDERR = b"1", b"2"
"""The first byte of a worker's output: which stream it is of."""

GREETING = b"\0sar agent\n"
"""Comes before the agent's first frame, and after whatever a login shell prints."""

PING_SECONDS = 5.0
SILENT_SECONDS, PATIENT_SECONDS = 60.0, 600.0
"""A host, and to its agent the launcher, that has not been heard of for so long is lost: a machine without power says
nothing more. A launcher may be stopped at its terminal for a while."""

_HEAD = struct.Struct(">cIQ")  # kind, rank, length
_MAX_PAYLOAD = 16 << 20
_MAX_NOISE = 1 << 20  # before the greeting
_CHUNK = 1 << 16


class Frame(NamedTuple):
    kind: bytes
    rank: int
    payload: bytes


class ChannelError(Exception):
    """The other side is gone, silent, or says what makes no sense."""


class Channel:
    """Frames in both directions. Nothing blocks: what cannot be written yet is kept."""

    def __init__(self, source: int, target: int, greeting: bytes = b"", silent: float = SILENT_SECONDS) -> None:
        self.source, self.target, self.greeting, self.silent = source, target, greeting, silent
        self.noise = b""
        self.unsent = bytearray()
        self.heard = self.spoke = time.monotonic()
        self._received = bytearray()
        for descriptor in (source, target):
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        return self.source

    def send(self, kind: bytes, rank: int = 0, payload: bytes = b"") -> None:
        """Sends a frame, or as much of it as fits: :meth:`tick` sends the rest."""
        self.spoke = time.monotonic()
        self.unsent += _HEAD.pack(kind, rank, len(payload)) + payload
        self._flush()

    def greet(self) -> None:
        self.unsent += GREETING
        self._flush()

    def _flush(self) -> None:
        try:
            while self.unsent:
                del self.unsent[: os.write(self.target, self.unsent[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError as error:
            self.unsent.clear()
            raise ChannelError(f"the connection is broken: {error}") from None

    def receive(self) -> list[Frame]:
        """The frames that have come whole. To be called when there is something to read.

        :raises ChannelError: the connection has ended, or carries something else
        """
        try:
            data = os.read(self.source, _CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelError(f"the connection is broken: {error}") from None
        if not data:
            raise ChannelError("the connection has ended")
        self.heard = time.monotonic()
        self._received += data
        return self._frames() if self._greeted() else []

    def _greeted(self) -> bool:
        if self.greeting:
            noise, found, rest = self._received.partition(self.greeting)
            if not found:
                if len(noise) > _MAX_NOISE:
                    raise ChannelError("something else than the agent answers")
                return False
            self.noise, self._received, self.greeting = bytes(noise), rest, b""
        return True

    def _frames(self) -> list[Frame]:
        found = []
        while len(self._received) >= _HEAD.size:
            kind, rank, length = _HEAD.unpack_from(self._received)
            if length > _MAX_PAYLOAD:
                raise ChannelError(f"a message of {length} bytes came, which is more than {_MAX_PAYLOAD}")
            end = _HEAD.size + length
            if len(self._received) < end:
                break
            found.append(Frame(kind, rank, bytes(self._received[_HEAD.size : end])))
            del self._received[:end]
        return found

    def tick(self) -> bool:
        """To be called several times a second. Says whether something is still to be sent.

        :raises ChannelError: nothing has been heard for ``silent`` seconds, or nothing can be sent any more
        """
        now = time.monotonic()
        if now - self.heard > self.silent and not select.select([self.source], [], [], 0)[0]:
            raise ChannelError(f"nothing has been heard for {self.silent:g} s")
        if now - self.spoke > PING_SECONDS:
            self.send(PING)
        else:
            self._flush()
        return bool(self.unsent)
