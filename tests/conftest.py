"""Fixtures: the pool of worker processes, and the sessions that parity is tested on."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for worker processes, which inherit it

# the secret of this user, which jobs without a token of their own use: one for the tests
if "SAR_SECRET_FILE" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="sar-tests-")
    os.environ["SAR_SECRET_FILE"] = os.path.join(_folder.name, "secret")

# what fails there is said in full
pytest.register_assert_rewrite("expressions", "layer_oracle", "one_piece", "sampling_oracle")

from pool import Pool  # noqa: E402

SESSIONS = [(1, "shm"), (2, "shm"), (4, "shm"), (8, "shm"), (2, "tcp"), (4, "tcp"), (8, "tcp")]


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.stop()


class Workers:
    """A session of ``world`` ranks over one transport."""

    def __init__(self, pool: Pool, world: int, transport: str) -> None:
        self.pool, self.world, self.transport = pool, world, transport

    def run(self, case: str, arguments: list[dict[str, Any]] | None = None, **common: Any) -> list[Any]:
        given = arguments if arguments is not None else [{}] * self.world
        return self.pool.run(self.world, self.transport, case, given, **common)

    def attempt(self, case: str, arguments: list[dict[str, Any]] | None = None, **common: Any) -> list[Any]:
        return self.pool.attempt(self.world, self.transport, case, arguments, **common)


@pytest.fixture(scope="session", params=SESSIONS, ids=lambda s: f"{s[1]}{s[0]}")
def workers(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    """Every session in turn; pytest keeps the tests of one session together."""
    return Workers(pool, *request.param)


@pytest.fixture(scope="session", params=SESSIONS[:3], ids=lambda s: f"{s[1]}{s[0]}")
def few(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    """Up to four workers on shared memory, for what has many forms and does not depend on what carries it."""
    return Workers(pool, *request.param)


@pytest.fixture(scope="session")
def two(pool: Pool) -> Workers:
    """Two workers, for what does not depend on how many there are."""
    return Workers(pool, 2, "shm")
