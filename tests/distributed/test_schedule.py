"""Operations pair with those of the same layers and passes on the other workers, or the run ends with an error."""

from __future__ import annotations

import pytest

from tests.distributed import cases_schedule
from tests.distributed.cases_schedule import LAYERS
from tests.support.graphs import make
from tests.support.pool import Failure
from tests.support.sessions import Workers

GRAPH = make("random", 2, seed=62)
PARTS = [GRAPH.part(r) for r in range(2)]


def ends(found: list[object], *words: str) -> None:
    """Both ranks ended with errors, and one at least says this."""
    assert all(isinstance(f, Failure) for f in found), found
    texts = [str(f) for f in found]
    assert any("ScheduleError" in t and all(w in t for w in words) for t in texts), texts


@pytest.mark.parametrize("kind", LAYERS)
def test_backward_in_another_order(two: Workers, kind: str) -> None:
    orders = "left right", "right left"
    given = [{"part": PARTS[r], "kind": kind, "forward": orders[0], "backward": orders[r]} for r in range(2)]
    words = [f"of {kind} {side} (whose forward was operation" for side in ("left", "right")]
    ends(two.attempt(cases_schedule.ordered, given), "rank 0 is in", "rank 1 is in", *words)


@pytest.mark.parametrize("kind", LAYERS)
def test_forward_in_another_order(two: Workers, kind: str) -> None:
    orders = "left right", "right left"
    given = [{"part": PARTS[r], "kind": kind, "forward": orders[r], "backward": orders[0]} for r in range(2)]
    words = [f'of communicator "train") of {kind} {side}' for side in ("left", "right")]
    ends(two.attempt(cases_schedule.ordered, given), "rank 0 is in", "rank 1 is in", *words)


def test_graphs_in_another_order(two: Workers) -> None:
    found = two.attempt(cases_schedule.graphs_ordered, [{"part": PARTS[r], "first": r == 0} for r in range(2)])
    ends(found, "which sends something else", "of graph")


def test_what_one_rank_does_for_itself(two: Workers) -> None:
    two.run(cases_schedule.with_others, [{"part": PARTS[r], "looks": r == 1} for r in range(2)])


def test_backward_of_one_that_sends_nothing(two: Workers) -> None:
    """What comes after it is not taken for a part of it."""
    assert sum(two.run(cases_schedule.backward_of_one, [{"part": part} for part in PARTS])) == len(GRAPH.src)


def test_two_threads_at_once(two: Workers) -> None:
    found = two.attempt(cases_schedule.threads, [{"part": part, "locked": False} for part in PARTS])
    ends(found)  # here one thread is seen in the middle of a model, or another rank sees the order


def test_threads_that_take_turns(two: Workers) -> None:
    two.run(cases_schedule.threads, [{"part": part, "locked": True} for part in PARTS])
    two.run(cases_schedule.one_after_the_other, [{"part": part} for part in PARTS])
