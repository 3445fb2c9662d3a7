"""UCX and MPI carry a training that ends in the bits of TCP; a lost worker or a missing library is an error."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sar.cli import doctor
from sar.cli.job import environment
from sar.distributed import libraries, tokens
from sar.distributed.network import free_port
from tests.lifecycle.scenarios import Group
from tests.support import ROOT, warm
from tests.support.command import WARM
from tests.support.scripts import finish

JOB = ["-m", "tests.distributed.library_job"]
MPIEXEC = os.path.join(sys.prefix, "bin", "mpiexec")


def probe(name: str, **variables: str) -> dict[str, str]:
    """What ``sar doctor`` learns of a transport's library."""
    done = warm.run(["-m", "sar.cli.probe", "network", name], env={**os.environ, **variables})
    done.check_returncode()
    found: dict[str, str] = json.loads(done.stdout)
    return found


@functools.lru_cache(None)
def missing(name: str) -> str:
    """Why a transport's library cannot be used here, or an empty string."""
    return probe(name)["problem"] or (f"no {MPIEXEC}" if name == "mpi" and not os.path.exists(MPIEXEC) else "")


def need(name: str) -> None:
    why = missing(name)
    if why:
        pytest.skip(why)


def launched(world: int, *ways: str) -> tuple[list[int], str, str]:
    """Exit codes, output and errors of workers that are started as ``sar launch`` does."""
    port, token = free_port(), tokens.fresh()
    place = [{**environment(rank, world, 1, "127.0.0.1", port), tokens.VARIABLE: token} for rank in range(world)]
    codes, out, err = zip(*finish([warm.piped([*JOB, *ways], cwd=ROOT, env=own) for own in place]))
    return list(codes), "".join(out), "".join(err)


def mpiexec(world: int, *command: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", tokens.VARIABLE: tokens.fresh()}
    variables.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())})
    whole = [MPIEXEC, "-n", str(world), *command]
    return subprocess.run(whole, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=150)


def check(output: str, world: int, *ways: str) -> None:
    """Each rank ended each training over the transport of that with the same bits."""
    reports: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    for rank in range(world):
        own = [report for report in reports if report["rank"] == rank]
        assert [report["used"] for report in own] == [[way.split(":")[0]] for way in ways], reports
        assert len({report["digest"] for report in own}) == 1, reports


def test_ucx_trains_as_tcp_does() -> None:
    need("ucx")
    ways = ("tcp", "ucx:tcp,self", "ucx:sm,self")
    codes, output, errors = launched(3, *ways)
    assert codes == [0, 0, 0], errors[-3000:]
    check(output, 3, *ways)


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


# mpiexec ends a job when a process of it leaves without MPI_Finalize. It does not see that while a shell has the
# process's connection to mpiexec as well: so each shell stays until the others' processes have ended.
STAYING = """
"$@" 2> "$0/$PMI_RANK"
: > "$0/$PMI_RANK.ended"
until [ -e "$0/0.ended" ] && [ -e "$0/1.ended" ] && [ -e "$0/2.ended" ]; do sleep 0.1; done
"""


def test_mpi_trains_as_tcp_does(tmp_path: Path) -> None:
    """And once more, until a worker is killed: where mpiexec lets them, the survivors tell who is lost. One job, whose
    workers import torch once; MPI begins once in a process."""
    need("mpi")
    ways = ("tcp", "mpi", "mpi:killed")
    done = mpiexec(3, "sh", "-c", STAYING, str(tmp_path), sys.executable, *JOB, *ways)
    said = {rank: (tmp_path / str(rank)).read_text() for rank in range(3)}
    check(done.stdout, 3, *ways[:2])
    for rank in (0, 2):
        assert "PeerLostError" in said[rank] and "rank 1" in said[rank], said[rank][-3000:]


def test_workers_of_no_mpi_world() -> None:
    """Each worker is a world of its own."""
    need("mpi")
    codes, _, errors = launched(2, "mpi")
    assert all(codes) and "start all workers by one mpiexec" in errors, errors[-3000:]


@pytest.mark.parametrize("transport", ["ucx", "mpi"])
def test_a_library_that_is_not_there(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"SAR_{transport.upper()}_LIB"
    monkeypatch.setenv(variable, "/nowhere/lib.so")
    codes, _, errors = launched(2, transport)
    assert all(codes) and f"/nowhere/lib.so, which {variable} names" in errors, errors[-3000:]


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    report = doctor._Report()
    monkeypatch.setattr(doctor, "subprocess", WARM)
    monkeypatch.setenv("SAR_MPI_LIB", "/nowhere/lib.so")
    doctor._library(report, "mpi")
    found, fix = capsys.readouterr().out.splitlines()
    assert found.split(None, 2) == ["note", "mpi", "/nowhere/lib.so, which SAR_MPI_LIB names, cannot be loaded"]
    assert fix.lstrip().startswith("-> ") and "ValueError" not in found + fix
    need("ucx")
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    doctor._library(report, "ucx")
    could, does = capsys.readouterr().out.splitlines()
    assert re.match(r"  ok  ucx +UCX 1\.\d+\.\d+, /\S+libucp\S*: .*tcp/lo.*; used with SAR_TRANSPORT=ucx", could), could
    assert re.match(r"  ok  ucx +two workers over ucx \(tcp/\w+\): [\d.]+ GB/s", does), does
    assert not report.trouble


def test_search_order() -> None:
    """The file that the variable names, then the system's, then that of a wheel."""
    need("ucx")
    try:
        ctypes.CDLL("libucp.so.0")
        system = True
    except OSError:
        system = False
    wheel = libraries.in_wheels("ucx")
    without = probe("ucx")["uses"]
    assert wheel or system
    assert (wheel == "" or wheel not in without) if system else wheel in without
    if wheel:
        assert wheel in probe("ucx", SAR_UCX_LIB=wheel)["uses"]


def test_wheels() -> None:
    assert libraries.in_wheels("tcp") == ""
    for name in ("ucx", "mpi"):
        found = libraries.in_wheels(name)
        assert found == "" or os.path.isabs(found) and os.path.isfile(found)
