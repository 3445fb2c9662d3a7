"""What must hold after a case."""

from __future__ import annotations

import signal
from typing import Any

from .case import Case
from .run import Outcome

#: Signals that a fault sends.
SENT = {"kill": signal.SIGKILL, "term": signal.SIGTERM}

#: Faults that take from a process what it needs: it may end by any error, which names what is missing.
TAKING = ("disk full", "memory limit", "descriptors")

#: Faults that only slow a job down, until an operation's deadline passes.
SLOW = ("loss of 10 %", "loss of 50 %", "1 Mbit/s", "stop, short", "flap")


def judge(outcome: Outcome, right: dict[str, Any] | None) -> list[str]:
    """What does not hold, nothing if all does.

    :param right: losses and parameters of the undisturbed run
    """
    case, found = outcome.case, []
    if outcome.failure:
        found.append(f"the fault could not be made: {outcome.failure}")
    if outcome.hung:
        found.append(f"hung: {outcome.hung}")
    found += [f"left behind: {left}" for left in outcome.left]
    for worker in outcome.workers:
        found += [f"rank {worker['rank']}: {text}" for text in _worker(case, worker, right, bool(outcome.hung))]
    return found


def _worker(case: Case, worker: dict[str, Any], right: dict[str, Any] | None, hung: bool) -> list[str]:
    error, done, status = worker["error"], worker["done"], worker["status"]
    struck = worker["rank"] in _struck(case)
    if done is not None and done != right:
        return [f"other bits than without the fault: {done}, {right}"]
    if hung and status is None:
        return []
    if error is None:
        if done is not None and status == 0:
            return []
        if struck and (status == -SENT.get(case.kind, 0) or case.kind == "memory limit"):
            return []
        return [f"ended with {status} and without an error after {worker['phase']!r}"]
    if done is not None:
        return [f"an error after the end: {error['kind']}: {error['message']}"]
    if case.kind == "none":
        return [f"an error without a fault: {error['kind']}: {error['message']}"]
    if error["kind"] in ("ScheduleError", "FormatError", "BudgetError"):
        return [f"the wrong error: {error['kind']}: {error['message']}"]
    if (
        struck
        and case.kind == "descriptors"
        and not any(word in error["message"] for word in ("open files", "descriptor"))
    ):
        return [f"does not say that descriptors are missing: {error['kind']}: {error['message']}"]
    if struck and case.kind in TAKING:
        return []
    if not error["ours"] and case.kind not in TAKING:  # what a peer lacks may be any error, as long as it names it
        return [f"an error that is none of SAR's: {error['kind']}: {error['message']}"]
    return _names(case, worker["rank"], error)


def _struck(case: Case) -> set[int]:
    """Ranks that a fault strikes themselves, and not only their connections."""
    return case.ranks_at(case.host(case.victim)) if case.kind == "disk full" else {case.victim}


def _names(case: Case, rank: int, error: dict[str, Any]) -> list[str]:
    """An error names a rank that was lost: one of the victim's host, or to those there anyone else."""
    message = error["message"]
    host = case.ranks_at(case.host(case.victim)) if case.kind not in (*SENT, "stop, long") else {case.victim}
    if case.kind == "cut, between two":
        host |= {case.peer}
    suspects = set(range(case.world)) - {rank} if rank in host or case.layout == "shm" else host
    named = {suspect for suspect in suspects if f"rank {suspect}" in message or f"ranks {suspect}" in message}
    if error["kind"] == "RendezvousError":
        named |= {suspect for suspect in suspects if _listed(message, suspect)}
    if not named:
        return [f"names none of {sorted(suspects)}: {error['kind']}: {message}"]
    if error["kind"] == "DeadlineError" and case.kind not in SLOW + TAKING:
        return [f"a deadline in place of a loss: {message}"]
    return []


def _listed(message: str, rank: int) -> bool:
    """Whether "ranks 1, 2, 3 of 4 did not come" names the rank."""
    before = message.partition(" of ")[0]
    return str(rank) in before.replace(",", " ").split()
