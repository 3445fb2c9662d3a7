"""UCX and MPI carry a training that ends in the bits of TCP; a lost worker or a missing library is an error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from sar.distributed import libraries, tokens
from sar.distributed.network import free_port
from tests.lifecycle.scenarios import Group
from tests.support import ROOT

JOB = "tests.distributed.library_job"
MPIEXEC = os.path.join(sys.prefix, "bin", "mpiexec")


def need(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", "sar.cli.probe", "network", name], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(done.stderr.splitlines()[-1])
    if name == "mpi" and not os.path.exists(MPIEXEC):
        pytest.skip(f"no {MPIEXEC}")


def started_by(launcher: list[str], transport: str, *how: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "SAR_TRANSPORT": transport, "OMP_NUM_THREADS": "1", tokens.VARIABLE: tokens.fresh()}
    variables.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **environment})
    return subprocess.run(
        [*launcher, "-m", JOB, *how], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=150
    )


def launch(world: int) -> list[str]:
    return [sys.executable, "-m", "sar", "launch", "--no-prefix", "-n", str(world), "--threads", "1"]


def mpiexec(world: int, *words: str) -> list[str]:
    return [MPIEXEC, *words, "-n", str(world), sys.executable]


def trained(done: subprocess.CompletedProcess[str], world: int, transport: str) -> list[str]:
    """What each rank ended with."""
    assert done.returncode == 0, done.stderr[-3000:]
    reports: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(r["rank"] for r in reports) == list(range(world)) and all(r["used"] == [transport] for r in reports)
    return [r["digest"] for r in sorted(reports, key=lambda r: int(r["rank"]))]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(("transport", "devices"), [("ucx", "tcp,self"), ("ucx", "sm,self"), ("mpi", "")])
def test_trains_as_tcp_does(transport: str, devices: str, world: int) -> None:
    need(transport)
    own = trained(started_by(launch(world), "tcp"), world, "tcp")
    way = mpiexec(world) if transport == "mpi" else launch(world)
    settings = {"UCX_TLS": devices} if devices else {}
    assert trained(started_by(way, transport, **settings), world, transport) == own


@pytest.mark.parametrize("devices", ["tcp,self", "sm,self"])
def test_a_killed_worker(devices: str) -> None:
    need("ucx")
    asked = {"SAR_TEST_PHASE": "backward", "SAR_TEST_SIGNAL": "SIGKILL", "UCX_TLS": devices}
    reports = Group("lost", 3, "ucx", **asked).wait()
    assert reports[1]["code"] == -signal.SIGKILL
    for report in (reports[0], reports[2]):
        assert report["kind"] == "PeerLostError" and report["rank"] == 1, report
        assert report["at"] - reports[1]["died"] < 6, report


def test_a_stopped_worker() -> None:
    need("ucx")
    asked = {"SAR_TEST_PHASE": "forward", "SAR_TEST_SIGNAL": "SIGSTOP", "SAR_LIVENESS_TIMEOUT": "3"}
    reports = Group("lost", 3, "ucx", **asked).wait(besides=(1,))
    for report in (reports[0], reports[2]):
        assert report["kind"] == "PeerLostError" and report["rank"] == 1, report


@pytest.mark.parametrize("words", [[], ["-disable-auto-cleanup"]])
def test_a_killed_worker_of_mpi(words: list[str]) -> None:
    """mpiexec ends the job; told not to, it leaves that to the survivors, who know who is lost."""
    need("mpi")
    done = started_by(mpiexec(3, *words), "mpi", "killed")
    assert done.returncode != 0
    if words:
        assert done.stderr.count("PeerLostError") >= 2 and "rank 1" in done.stderr, done.stderr[-3000:]


def test_workers_of_no_mpi_world() -> None:
    """Each worker is a world of its own."""
    need("mpi")
    done = started_by(launch(2), "mpi")
    assert done.returncode != 0 and "start all workers by one mpiexec" in done.stderr, done.stderr[-3000:]


@pytest.mark.parametrize("transport", ["ucx", "mpi"])
def test_a_library_that_is_not_there(transport: str) -> None:
    variable = f"SAR_{transport.upper()}_LIB"
    done = started_by(launch(2), transport, **{variable: "/nowhere/lib.so"})
    assert done.returncode != 0 and f"/nowhere/lib.so, which {variable} names" in done.stderr, done.stderr[-3000:]


def test_wheels() -> None:
    assert libraries.in_wheels("tcp") == ""
    for name in ("ucx", "mpi"):
        found = libraries.in_wheels(name)
        assert found == "" or os.path.isabs(found) and os.path.isfile(found)
