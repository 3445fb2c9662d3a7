"""Exceptions of SAR, besides Python's own ``ValueError``, ``TypeError`` and ``OSError``."""

from __future__ import annotations

from typing import Any

__all__ = [
    "BudgetError",
    "DeadlineError",
    "FormatError",
    "PeerLostError",
    "RemoteError",
    "RendezvousError",
    "ScheduleError",
    "WholeGraphError",
]


class _OfRank(Exception):
    """``rank`` is the worker that an error speaks of, -1 where it is not known."""

    def __init__(self, message: str = "", rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class PeerLostError(_OfRank, RuntimeError):
    """A worker died, was stopped past the liveness deadline, or was cut off.

    ``rank`` is its rank, ``host`` where it ran, ``phase`` what it was last known to do. ``rank`` is -1, and the
    others are empty, where they are not known.
    """

    def __init__(self, message: str = "", rank: int = -1, host: str = "", phase: str = "") -> None:
        super().__init__(message, rank)
        self.host = host
        self.phase = phase


class RemoteError(PeerLostError):
    """Another worker failed with an error of its own, which the message carries."""


class ScheduleError(_OfRank, RuntimeError):
    """Workers disagree about which operation comes next; the message names both operations and both ranks."""


class RendezvousError(_OfRank, RuntimeError):
    """The workers could not meet: the master is unreachable, a port is in use, two workers have one rank."""


class DeadlineError(_OfRank, TimeoutError):
    """An operation did not end before its deadline."""


class FormatError(ValueError):
    """A partition, tensor or checkpoint file is damaged, at byte ``offset`` of ``file`` (-1 where unknown)."""

    def __init__(self, message: str = "", file: str = "", offset: int = -1) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset


class BudgetError(RuntimeError):
    """A memory budget cannot be met; ``minimum`` is the smallest, in bytes, that can."""

    def __init__(self, message: str = "", minimum: int = 0) -> None:
        super().__init__(message)
        self.minimum = minimum


class WholeGraphError(NotImplementedError):
    """Something that reads the whole graph was called on a graph split over workers, on one worker as on several.

    ``name`` is what was called, ``instead`` what to do in place of it. It is raised before anything is sent, so by
    every worker that makes the call.
    """

    def __init__(self, name: str = "", instead: str = "") -> None:
        super().__init__(f"{name} is not supported on a graph split over workers: {instead}")
        self.name = name
        self.instead = instead

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.instead)
