"""Sessions that cases run on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

import pytest

from tests.support.pool import Case, Pool


class Session(NamedTuple):
    """How many workers form a session, and what carries their messages."""

    world: int
    transport: str

    def __str__(self) -> str:
        return f"{self.transport}{self.world}"


SESSIONS = [Session(*s) for s in ((1, "shm"), (2, "shm"), (4, "shm"), (8, "shm"), (2, "tcp"), (4, "tcp"), (8, "tcp"))]


def half(cases: Iterable[str]) -> list[Any]:
    """Parameters of a test that differs from another one in its dtype or transport alone, so that half of its cases
    show the kind: the others have the mark ``full``. Which ones depends on their names alone."""
    return [pytest.param(case, marks=pytest.mark.full) if crc32(case.encode()) % 2 else case for case in cases]


class Workers:
    """A session of ``world`` ranks over one transport."""

    def __init__(self, pool: Pool, world: int, transport: str) -> None:
        self.pool, self.world, self.transport = pool, world, transport

    def run(self, case: Case, arguments: list[dict[str, Any]] | None = None, **common: Any) -> list[Any]:
        given = arguments if arguments is not None else [{}] * self.world
        return self.pool.run(self.world, self.transport, case, given, **common)

    def attempt(self, case: Case, arguments: list[dict[str, Any]] | None = None, **common: Any) -> list[Any]:
        return self.pool.attempt(self.world, self.transport, case, arguments, **common)
