"""Fixtures: the pool of worker processes, and the sessions that parity is tested on."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Generator, Iterator
from zlib import crc32

import pytest

gc.disable()  # until tests are collected: what is imported stays, and looking for garbage in it takes seconds

# A folder of the run, which its streams inherit.
if "SAR_TEST_RUN" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="sar-tests-")
    os.environ["SAR_TEST_RUN"] = _folder.name
RUN = Path(os.environ["SAR_TEST_RUN"])
# PyG writes a module for each layer into the temporary folder, and leaves it there
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
os.environ["TMPDIR"] = tempfile.tempdir = str(RUN)
# the secret of this user, which jobs without a token of their own use: one for the tests
os.environ.setdefault("SAR_SECRET_FILE", str(RUN / "secret"))

# A script that runs tests behind it has it ignored, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# what fails there is said in full
pytest.register_assert_rewrite("tests.links", "tests.parity", "tests.sampling", "tests.support")

from tests.support import streams, templates  # noqa: E402, F401
from tests.support.pool import Pool  # noqa: E402
from tests.support.sessions import SESSIONS, Session, Workers  # noqa: E402


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    streams.fork()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return streams.scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    with streams.turn(RUN, alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.hookimpl(tryfirst=True)  # before those with the mark are deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Orders tests for the streams, and marks as ``full`` what a run leaves out of the product of cases and sessions.

    A function's cases are dealt to its sessions, so that each session has a case of each function; where there are
    many, every fourth case has another session than ``streams.ALWAYS``, and where there are few, a case has several.
    Which ones depends on the names of the parameters' values alone. Tests named by their ids are never left out.
    """
    items.sort(key=lambda item: streams.order(item.nodeid))
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
            others = [session for session in by_session if session != streams.ALWAYS]
            left_out = {s for n, s in enumerate(others) if (n - turn) % min(len(cases), 4 * len(others))}
            if len(left_out) < len(others) and len(cases) >= 2 * len(others):
                left_out.add(streams.ALWAYS)
            for session in left_out & by_session.keys():
                by_session[session].add_marker("full")


def pytest_collection_finish() -> None:
    gc.freeze()  # looking for garbage in what was imported takes longer than most tests
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries look at their end whether all that they made has gone


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    made = subprocess.run(words, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("needs the right to mount a filesystem")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
