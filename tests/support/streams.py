"""Streams of tests beside each other (``pytest -n 3``): what goes together, in which order, and what runs alone."""

from __future__ import annotations

import contextlib
import fcntl
import re
import subprocess
from pathlib import Path
from typing import Any, Iterator

from tests.support import warm
from tests.support.sessions import SESSIONS, Session

ALWAYS = Session(2, "shm")
"""The session that most cases run on."""
# The pool's processes take most memory with 8 workers, and the units of few workers are the shortest: they come last.
ORDER = sorted(SESSIONS, key=lambda session: (session == ALWAYS, -session.world))
NAMES = {str(session): place for place, session in enumerate(ORDER)}


def session_of(nodeid: str) -> str:
    """The session that a test runs on, from its id; "" for tests that start processes of their own, or none."""
    _, _, parameters = nodeid.partition("[")
    return next((word for word in re.split(r"[-\]]", parameters) if word in NAMES), "")


def unit(nodeid: str) -> str:
    """What goes to one stream in one piece: the tests of a file, or those of them that run on one session."""
    return f"{session_of(nodeid)} {nodeid.partition('::')[0]}"


def order(nodeid: str) -> int:
    """First what starts processes of its own, in large units; then one session after the other, in small ones. So the
    streams end together, and each opens a session once."""
    return NAMES.get(session_of(nodeid), -1)


def scheduler(config: Any, log: Any) -> Any:
    """What deals units to streams, in the order of collection."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    config.option.loadscopereorder = False  # otherwise by the number of tests, which says little of their time
    return Units(config, log)


def fork() -> None:
    """From now on, pytest-xdist starts streams as forks of a process that has imported torch, but not DGL. The
    processes that fork for the stream are forked from it first, before it has threads and loads the engine."""
    from execnet import gateway_base, gateway_io

    class Forked(gateway_io.Popen2IOMaster):
        def __init__(self, args: list[str], execmodel: Any) -> None:
            code = f"from {warm.__name__} import with_libraries; with_libraries()\n{args[-1]}"
            pipe = subprocess.PIPE
            self.popen = warm.Popen(["-c", code], stdin=pipe, stdout=pipe)
            gateway_base.Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel)

    gateway_io.Popen2IOMaster = Forked  # type: ignore[misc]


@contextlib.contextmanager
def turn(folder: Path, alone: bool) -> Iterator[None]:
    """Waits until a test may run: not beside one that is to run alone, and alone if it is that itself.

    :param folder: where all streams of the run keep their locks
    """
    with open(folder / "entrance", "w") as entrance, open(folder / "running", "w") as running:
        fcntl.flock(entrance, fcntl.LOCK_EX)  # whoever waits to be alone keeps others from beginning
        fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(entrance, fcntl.LOCK_UN)
        yield
