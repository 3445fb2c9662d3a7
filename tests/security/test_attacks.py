"""What strangers send to a job's ports changes nothing in it. ``make attacks`` runs more of it than the plain tests."""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sar._engine import abi
from sar.distributed import network
from sar.errors import RendezvousError
from tests.security.attacked_job import TOKEN, Attackers, Job
from tests.security.attacks import CALLS, HOST, INSIDERS, KINDS, TCP_LINK, Kit, genuine, read
from tests.security.jobs import SUM, WITHOUT
from tests.support.scripts import environment, write_script

ALL = bool(os.environ.get("SAR_ATTACKS"))
COUNT = 2000 if ALL else 150
STEPS = 150 if ALL else 60
NOBODY = 65534
GROWTH = 32 << 20

_undisturbed: dict[str, list[dict[str, Any]]] = {}


def undisturbed(transport: str) -> list[dict[str, Any]]:
    if transport not in _undisturbed:
        with Job(transport, STEPS) as job:
            for rank in range(job.world):
                job.start(rank)
            _undisturbed[transport] = job.finish()
    return _undisturbed[transport]


def besieged(transport: str, kinds: list[str], uid: int = 0) -> dict[str, dict[str, int]]:
    """A job under attack from before its rendezvous until it has ended, at the port that rank 0 listens on."""
    expected = undisturbed(transport)
    with Attackers() as attackers, Job(transport, STEPS) as job:
        job.start(0)
        job.await_listener()
        attackers.start(kinds, COUNT, [job.port], uid)  # before
        time.sleep(1.0)
        job.start(1)
        job.start(2)  # during
        job.met()
        reports = job.finish()  # after
        told = attackers.stop()
    assert [r["digest"] for r in reports] == [r["digest"] for r in expected]
    assert reports[0]["peak"] - expected[0]["peak"] <= GROWTH, (reports, expected, told)
    assert all(one["opened"] > 0 for one in told.values()), told
    assert all(one["admitted"] == 0 for one in told.values()), told
    print(transport, "uid", uid, told, "rank 0 grew by", (reports[0]["peak"] - expected[0]["peak"]) >> 20, "MiB")
    return told


def test_siege() -> None:
    """Everything at once, over TCP."""
    besieged("tcp", ["silent", "replayed", "bomb", "insider bomb"])


@pytest.mark.skipif(not ALL, reason="make attacks")
@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("kind", KINDS)
def test_siege_of_one_kind(kind: str, transport: str) -> None:
    besieged(transport, [kind])


@pytest.mark.skipif(not ALL or os.geteuid() != 0, reason="make attacks, as root")
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_siege_by_another_user(transport: str) -> None:
    besieged(transport, ["silent", "replayed", "no proof", "random"], NOBODY)


# ---- one connection, looked at ------------------------------------------------------------


def test_the_attackers_speak_the_protocol() -> None:
    """Otherwise what they send would be refused for the wrong reason. And what is sent twice is refused."""
    with Job("tcp", 1) as job:
        job.start(0)
        job.await_listener()
        for purpose in (CALLS, TCP_LINK):
            connection, recorded = genuine(TOKEN, job.port, purpose)
            connection.close()
            with socket.create_connection((HOST, job.port), timeout=10) as again:
                again.sendall(recorded)
                assert len(read(again, 4096)) == 96  # a challenge, and the end
        for name in ("insider bomb", "insider oversize"):
            connection, recorded = genuine(TOKEN, job.port)
            with connection:
                with suppress(OSError):
                    connection.sendall(INSIDERS[name](Kit(TOKEN, [job.port], recorded)))
                with suppress(ConnectionResetError):
                    assert read(connection, 1) == b"", name
        # a wrong rank is refused where it wants in, and told so
        with pytest.raises(PermissionError, match="status 5"):
            genuine(TOKEN, job.port, TCP_LINK, world=7)


def test_workers_of_this_job_that_are_wrong() -> None:
    """Wrong world sizes, taken ranks and other tokens, again and again, while the others meet: refused alone."""
    expected = undisturbed("tcp")
    with Job("tcp", STEPS) as job:
        job.start(0)
        job.await_listener()
        limits = {"start_seconds": 2.0, "liveness_seconds": 5.0, "operation_seconds": 5.0, "window_bytes": 0}
        place: dict[str, Any] = {"interface_name": None, "transport": "tcp", "advertise": None, **limits}

        def join(rank: int, world: int, token: str = TOKEN, **more: Any) -> str:
            with pytest.raises(RendezvousError) as caught:
                abi.session_open(rank, world, HOST, job.port, **{**place, "job_token": token, **more})
            return str(caught.value)

        def all_wrong(times: int) -> None:
            for _ in range(times):
                assert "world size of 4" in join(1, 4)
                assert "world size of 2" in join(1, 2)
            assert "TLS" in join(1, 3, tls=True)

        all_wrong(500 if ALL else 3)
        assert "another job" in join(1, 3, "the token of another job", start_seconds=4.0)
        assert "another job" in join(2, 3, "", insecure=True, start_seconds=4.0)
        job.start(1)
        job.start(2)
        job.met()
        assert "two workers have rank 1" in join(1, 3)
        all_wrong(10 if ALL else 1)
        reports = job.finish()
    assert [r["digest"] for r in reports] == [r["digest"] for r in expected]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_the_unix_socket_is_for_this_user() -> None:
    with Job("shm", 1) as job:
        job.start(0)
        job.await_listener()
        names = [w[-1] for w in map(str.split, Path("/proc/net/unix").read_text().splitlines()) if "@sar-" in w[-1]]
        name = next(n for n in names if n.startswith(f"@sar-{job.workers[0].pid}-"))
        code = (
            "import os, socket, sys\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect('\\0' + sys.argv[1])\n"
            "print(len(s.recv(4096)))\n"
        )
        done = subprocess.run([sys.executable, "-c", code, name[1:]], capture_output=True, text=True, timeout=60)
        assert done.stdout == "0\n" or "ConnectionResetError" in done.stderr, done


# ---- two jobs ------------------------------------------------------------------------------


@pytest.mark.skipif(not ALL, reason="make attacks")
@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("workers", [2, 3])
def test_two_launches_at_once(tmp_path: Path, workers: int, transport: str) -> None:
    """Started at random offsets: each alone right, or refused by name."""
    path, draw = write_script(tmp_path, SUM), random.Random(workers)
    outcomes: dict[str, int] = {}
    for _ in range(int(os.environ.get("SAR_ATTACK_STARTS", "13"))):
        port = str(network.free_port())
        command = [sys.executable, "-m", "sar", "launch", "-n", str(workers), "--master-port", port, str(path)]
        jobs = []
        for value in (1, 100):
            env = environment(SAR_TEST_VALUE=value, SAR_START_TIMEOUT=30, SAR_TRANSPORT=transport, **WITHOUT)
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            jobs.append(subprocess.Popen(command, text=True, env=env, **pipes))  # type: ignore[call-overload]
            time.sleep(draw.random() * draw.choice([0.01, 0.3, 3.0]))
        outputs = [job.communicate(timeout=300) for job in jobs]
        told = []
        for value, job, (out, err) in zip((1, 100), jobs, outputs):
            found = re.findall(r"SUM (\S+)", out)
            assert set(found) <= {str(float(workers * value))}, (out, err)  # no mixed sums
            if job.returncode == 0:
                assert len(found) == workers
            else:
                assert "belongs to another job" in out, (out, err)
            told.append("right" if job.returncode == 0 else "refused")
        assert "right" in told, outputs
        outcomes[" ".join(told)] = outcomes.get(" ".join(told), 0) + 1
    print(transport, workers, outcomes)
