"""Fixtures: the pool of worker processes, and the sessions that parity is tested on."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from typing import Iterator
from zlib import crc32

import pytest

# the secret of this user, which jobs without a token of their own use: one for the tests
if "SAR_SECRET_FILE" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="sar-tests-")
    os.environ["SAR_SECRET_FILE"] = os.path.join(_folder.name, "secret")

# what fails there is said in full
pytest.register_assert_rewrite("tests.parity", "tests.sampling", "tests.support")

from tests.support.pool import Pool  # noqa: E402
from tests.support.sessions import SESSIONS, Session, Workers  # noqa: E402

ALWAYS = Session(2, "shm")


@pytest.hookimpl(tryfirst=True)  # before those with the mark are deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks as ``full`` what a run leaves out of the product of cases and sessions.

    Every case runs on ``ALWAYS``. A function's cases are dealt to its other sessions, so that each session has a case
    of each function, and each case at least one more session. Which one depends on the names of the parameters'
    values alone. Tests named by their ids are never left out.
    """
    if any("[" in argument for argument in config.args):
        return
    functions: dict[str, dict[int, dict[Session, pytest.Item]]] = defaultdict(lambda: defaultdict(dict))
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        for session in parameters.values():
            if isinstance(session, Session):
                function, _, values = item.nodeid.partition("[")
                case = values.replace(str(session), "", 1)
                functions[function][crc32(case.encode())][session] = item
    for cases in functions.values():
        for turn, (_, by_session) in enumerate(sorted(cases.items())):
            others = [session for session in by_session if session != ALWAYS]
            for place, session in enumerate(others):
                if (place - turn) % min(len(cases), len(others)):
                    by_session[session].add_marker("full")


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.stop()


@pytest.fixture(scope="session", params=SESSIONS, ids=str)
def workers(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    """Every session in turn; pytest keeps the tests of one session together."""
    return Workers(pool, *request.param)


@pytest.fixture(scope="session", params=SESSIONS[:3], ids=str)
def few(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    """Up to four workers on shared memory, for what has many forms and does not depend on what carries it."""
    return Workers(pool, *request.param)


@pytest.fixture(scope="session")
def two(pool: Pool) -> Workers:
    """Two workers, for what does not depend on how many there are."""
    return Workers(pool, 2, "shm")
