"""The runner of random faults (``make faults``): what it draws, what it lets pass, and a few faults."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.faults.__main__ import missing
from tests.faults.case import Case, draw
from tests.faults.kinds import KINDS
from tests.faults.run import Outcome
from tests.faults.verdict import judge
from tests.support import ROOT

RIGHT = {"losses": ["0x1p0"], "parameters": "ab"}
LOST = {"kind": "PeerLostError", "message": "lost rank 1 on host1: its process has ended", "rank": 1, "ours": True}


def killed(**more: Any) -> Outcome:
    """Rank 1 of 3 was killed, as it should be seen."""
    survivor = {"error": LOST, "done": None, "status": 1, "phase": "error"}
    victim = {"error": None, "done": None, "status": -9, "phase": "forward"}
    workers = [{"rank": rank, **copy.deepcopy(victim if rank == 1 else survivor)} for rank in range(3)]
    return Outcome(Case(5, "kill", "tcp", 3, "sage", victim=1), workers, **more)


def test_drawing_is_repeatable() -> None:
    layouts = {name: kind.layouts for name, kind in KINDS.items()}
    cases = [draw(seed, layouts) for seed in range(300)]
    assert cases == [draw(seed, layouts) for seed in range(300)]
    assert {case.kind for case in cases} == set(KINDS)
    assert {case.world for case in cases} == {3, 4, 6, 8}
    assert all(case.layout in KINDS[case.kind].layouts and case.victim < case.world for case in cases)


def test_what_should_happen_passes() -> None:
    assert judge(killed(), RIGHT) == []
    done = killed()
    for worker in done.workers:
        if worker["rank"] != 1:
            worker.update(error=None, done=RIGHT, status=0)
    assert judge(done, RIGHT) == []  # it was killed when all was over


def change(**facts: Any) -> Callable[[Outcome], None]:
    return lambda outcome: outcome.workers[0].update(facts)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (change(error=None, status=0, done={**RIGHT, "losses": ["0x1p1"]}), "other bits"),
        (change(error=None, status=-11), "ended with -11 and without an error"),
        (change(error=None, status=0), "ended with 0 and without an error"),
        (change(error={**LOST, "message": "lost rank 2 on host2: no sign of life"}), r"names none of \[1\]"),
        (change(error={**LOST, "kind": "DeadlineError"}), "a deadline in place of a loss"),
        (change(error={**LOST, "kind": "ScheduleError"}), "the wrong error"),
        (change(error={**LOST, "kind": "KeyError", "ours": False}), "none of SAR's"),
        (change(done=RIGHT), "an error after the end"),
        (lambda outcome: setattr(outcome, "hung", "rank 0"), "hung: rank 0"),
        (lambda outcome: outcome.left.append("process 7"), "left behind: process 7"),
    ],
)
def test_what_must_not_happen_is_found(break_it: Callable[[Outcome], None], says: str) -> None:
    import re

    outcome = killed()
    break_it(outcome)
    found = judge(outcome, RIGHT)
    assert len(found) == 1 and re.search(says, found[0]), found


def test_faults(tmp_path: Path) -> None:
    why = missing()
    if why:
        pytest.skip(why)
    words = ["--faults", "2", "--kind", "kill", "--layouts", "tcp", "--seed", "47", "--logs", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", *words], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0 and "2 cases" in done.stdout, done.stdout + done.stderr
