"""Workers that die, stop, are slow, diverge, fail or leave; and workers that cannot meet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any, Iterator

import pytest

from sar.distributed.network import free_port
from tests.lifecycle import losses, scenarios
from tests.lifecycle.scenarios import COMMAND, Group
from tests.support.command import torchrun
from tests.support.pool import Pool
from tests.support.scripts import finish
from tests.support.sessions import Workers

WORLD = 3
AT_ONCE = 15.0
"""Seconds. Waiting for a deadline would take more: 20 for the sign of life."""


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No shared-memory segment outlives the workers."""
    before = set(os.listdir("/dev/shm"))
    yield
    left = {name for name in set(os.listdir("/dev/shm")) - before if "sar" in name.lower()}
    assert not left, f"left in /dev/shm: {left}"


@pytest.fixture(scope="module")
def slow_group() -> Iterator[Group]:
    """Started early, because it sleeps for long."""
    group = Group("slow", 2, SAR_LIVENESS_TIMEOUT="3", SAR_TEST_SLEEP="30")
    yield group
    group.kill()


def survivors(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for rank, r in enumerate(reports) if rank != 1]


KILLED = [("forward", "shm"), ("backward", "tcp"), ("all_reduce", "tcp"), ("between", "shm"), ("backward", "torch")]
OTHERS = [("forward", "tcp"), ("backward", "shm"), ("all_reduce", "shm"), ("between", "tcp"), ("all_reduce", "torch")]


@pytest.mark.parametrize(("phase", "transport"), [*KILLED, *(pytest.param(*c, marks=pytest.mark.full) for c in OTHERS)])
def test_a_killed_worker(slow_group: Group, phase: str, transport: str) -> None:
    reports = Group("lost", WORLD, transport, SAR_TEST_PHASE=phase, SAR_TEST_SIGNAL="SIGKILL").wait()
    assert reports[1]["code"] == -signal.SIGKILL
    for report in survivors(reports):
        assert report["kind"] == "PeerLostError", report
        assert report["rank"] == 1 and "1" in report["message"]
        assert report["host"] and report["host"] in report["message"]
        assert report["phase"], report
        assert report["at"] - reports[1]["died"] < AT_ONCE, report


@pytest.mark.parametrize("transport", ["shm", "tcp", pytest.param("torch", marks=pytest.mark.full)])
def test_a_stopped_worker(transport: str) -> None:
    asked = {"SAR_TEST_PHASE": "forward", "SAR_TEST_SIGNAL": "SIGSTOP", "SAR_LIVENESS_TIMEOUT": "3"}
    group = Group("lost", WORLD, transport, **asked)
    began = time.monotonic()
    reports = group.wait(besides=(1,))
    for report in survivors(reports):
        assert report["kind"] == "PeerLostError" and report["rank"] == 1, report
        assert 2.0 < report["seconds"] < 30.0, report  # the deadline of an operation is 90 s
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("phase", ["forward", pytest.param("all_reduce", marks=pytest.mark.full)])
def test_ctrl_c_in_the_engine(pool: Pool, phase: str) -> None:
    reports = pool.attempt(WORLD, "shm", losses.interrupted, phase=phase)
    pool.leave()
    assert reports[0]["kind"] == "KeyboardInterrupt", reports[0]
    for report in reports[1:]:
        assert report["kind"] == "RemoteError" and report["rank"] == 0, report
        assert "KeyboardInterrupt" in report["message"]
    assert max(reports[0]["at"], reports[2]["at"]) < reports[1]["came"]  # rank 2 waited too, and not for rank 1


def test_a_worker_that_never_comes() -> None:
    reports = Group("absent", WORLD, SAR_START_TIMEOUT="2").wait()
    for report in survivors(reports):
        assert report["kind"] == "RendezvousError", report
        assert report["seconds"] < 60  # the deadline of an operation is 90 s
    assert any("1" in r["message"] for r in survivors(reports))


def test_divergence(pool: Pool) -> None:
    """It is noticed, not waited for until the deadline of an operation has passed."""
    failures = pool.attempt(WORLD, "shm", losses.diverges)
    assert [f.kind for f in failures] == ["ScheduleError"] * WORLD, failures
    text = " ".join(f.message for f in failures)
    assert "aggregate" in text or "forward" in text


def test_another_width_on_one_rank(two: Workers) -> None:
    for failure in two.attempt(losses.differs):
        assert failure.kind in ("ScheduleError", "ValueError"), failure
        assert "ranks" in failure.message and "different feature widths" in failure.message, failure


@pytest.mark.parametrize("how", ["torch", pytest.param("multiprocessing", marks=pytest.mark.full)])
def test_an_exception_in_a_child_process(how: str) -> None:
    """Such processes end without atexit and without sys.excepthook."""
    (report,) = Group("children", 1, SAR_TEST_SPAWN=how).wait()
    lines = [json.loads(line) for line in report["stdout"].splitlines() if line.startswith("{")]
    found = [line for line in lines if "kind" in line]
    assert len(found) == 2, report
    for line in found:
        assert line["kind"] == "RemoteError" and line["rank"] == 1, line
        assert "the script of rank 1 divided by zero" in line["message"]


def test_a_node_without_in_edges(pool: Pool) -> None:
    """The Python package gave such nodes the degree 1: its scripts run layers that DGL would refuse. The degrees
    themselves are DGL's."""
    pytest.importorskip("dgl")
    for rank, report in enumerate(pool.attempt(WORLD, "shm", scenarios.zero_degree)):
        assert set(report["same"].values()) == {True}, report
        degrees = [2, 1, 1, 0] if rank == 1 else [1, 1, 1, 1]
        assert report["degrees"] == degrees and report["more"] == [d + 1 for d in degrees]


def test_a_worker_that_leaves() -> None:
    reports = Group("leaves", WORLD).wait()
    assert reports[1]["code"] == 0
    for report in survivors(reports):
        assert report["kind"] == "PeerLostError" and report["rank"] == 1, report


@pytest.mark.parametrize("scenario", ["ends", "twice"])
def test_ordinary_ends(scenario: str) -> None:
    for report in Group(scenario, WORLD).wait():
        assert report["code"] == 0 and report["kind"] == "none" and not report["stderr"], report


def test_a_fork() -> None:
    for report in Group("forks", 2).wait():
        assert report["message"].startswith("RuntimeError") and "spawn" in report["message"], report


# ---- torch.distributed beside the engine ------------------------------------


@pytest.mark.parametrize(
    ("asked", "environment", "expected", "torch_backend"),
    [
        ("gloo", {}, "gloo", "gloo"),
        ("ccl", {}, "ccl", "gloo"),
        ("gloo", {"SAR_BACKEND": "sar"}, "sar", "sar"),
        ("gloo", {"SAR_TEST_EXISTING": "1"}, "gloo", "gloo"),
        pytest.param("sar", {}, "sar", "sar", marks=pytest.mark.full),  # what all other tests ask for
    ],
)
def test_backends(asked: str, environment: dict[str, str], expected: str, torch_backend: str) -> None:
    reports = Group("torch_too", 2, SAR_TEST_BACKEND=asked, **environment).wait()
    for report in reports:
        assert report["code"] == 0, report["stderr"]
        assert report["backend"] == expected and report["plane"]["torch.distributed"] == torch_backend
        assert report["plane"]["aggregation"] == "native" and report["sum"] == 1.0
        assert report["torch_sum"] == 1
        assert report["group_left"] == bool(environment.get("SAR_TEST_EXISTING"))
        if asked == "ccl":
            assert report["stderr"].count("oneCCL bindings are not installed") == 1


@pytest.mark.parametrize("backend", ["sar", pytest.param("gloo", marks=pytest.mark.full)])
def test_torchrun(backend: str) -> None:
    """torchrun's own store sits on MASTER_PORT."""
    env = {**os.environ, "SAR_TEST_BACKEND": backend, "OMP_NUM_THREADS": "1", "SAR_START_TIMEOUT": "60"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    place = ["--nproc-per-node=2", f"--master-port={free_port()}"]
    ((code, out, err),) = finish([torchrun(*place, *COMMAND, "torch_too", env=env, **pipes)])
    assert code == 0, err
    assert out.count('"sum": 1.0') == 2


# ---- last, because it sleeps for half a minute --------------------------------


def test_a_slow_worker_is_not_lost(slow_group: Group) -> None:
    for report in slow_group.wait():
        assert report["code"] == 0 and report["total"] == 1.0, report
        assert not report["stderr"]
