"""What tests the streams of a run take, and when (``tests/support/streams.py``)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.streams import order, turn, unit


def test_units_are_files_or_sessions_of_them() -> None:
    one = unit("tests/parity/test_sage.py::test_graphs[tcp8-hub]")
    assert one == unit("tests/parity/test_sage.py::test_widths[tcp8-random-1x47]")
    for other in ("test_sage.py::test_graphs[shm8-hub]", "test_gat.py::test_graphs[tcp8-hub]"):
        assert one != unit(f"tests/parity/{other}")
    assert unit("tests/cli/test_cli.py::test_help[info --help]") == unit("tests/cli/test_cli.py::test_version")


def test_order() -> None:
    """Processes of their own first, then sessions, the one that has most tests last."""
    assert order("tests/cli/test_cli.py::test_version") < order("test.py::test[shm8]") < order("test.py::test[shm2-a]")


@pytest.mark.parametrize("first", [True, False])
def test_alone(tmp_path: Path, first: bool) -> None:
    """One that runs alone waits for those that run, others wait for it, and others do not wait for each other."""
    begun = threading.Event()

    def other(alone: bool) -> None:
        with turn(tmp_path, alone):
            begun.set()

    with turn(tmp_path, alone=first):
        waits = threading.Thread(target=other, args=(not first,))
        waits.start()
        assert not begun.wait(0.2)
    waits.join(20)
    assert begun.is_set()
    with turn(tmp_path, alone=False):
        beside = threading.Thread(target=other, args=(False,))
        beside.start()
        beside.join(20)
        assert not beside.is_alive()
