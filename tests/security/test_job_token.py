"""The token of a job: where it comes from, and whom it keeps out. Attacks on the ports are in ``test_attacks.py``."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sar
from sar.distributed import network, tokens as job_tokens
from tests.security.jobs import SUM, WITHOUT
from tests.support import warm
from tests.support.command import started, torchrun
from tests.support.scripts import environment, finish, write_script


def start(path: Path, rank: int, world: int, address: str, port: int, **more: object) -> subprocess.Popen[str]:
    place = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": address, "MASTER_PORT": port, "SAR_TEST_VALUE": 10**rank}
    return warm.piped([str(path)], env=environment(**{**WITHOUT, **place, **more}))


# ---- two jobs ------------------------------------------------------------------


def test_two_launches_on_one_port(tmp_path: Path) -> None:
    """The one that was there first goes on; every worker of the other is refused, by name."""
    path, port = write_script(tmp_path, SUM), str(network.free_port())
    jobs = []
    for value in (1, 100):
        env = environment(SAR_TEST_VALUE=value, SAR_START_TIMEOUT=30, **WITHOUT)
        words = ["launch", "-n", 2, "--grace", 3, "--master-port", port, path]
        jobs.append(started(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env))
    reports = finish(jobs)
    sums = [re.findall(r"SUM (\S+)", out) for _, out, _ in reports]
    for value, (code, out, err), found in zip((1, 100), reports, sums):
        assert set(found) <= {str(2.0 * value)}, (found, out, err)
        if code == 0:
            assert len(found) == 2
        else:
            assert "belongs to another job" in out, (out, err)
    assert any(code == 0 for code, *_ in reports), reports


def test_a_worker_of_another_job(tmp_path: Path) -> None:
    path, port = write_script(tmp_path, SUM), network.free_port()
    ours = {"SAR_JOB_TOKEN": "the token of this very job"}
    processes = [
        start(path, 0, 2, "127.0.0.1", port, **ours),
        start(path, 1, 2, "127.0.0.1", port, SAR_JOB_TOKEN="the token of some other job"),
    ]
    code, out, err = finish(processes[1:])[0]
    assert code == 3 and "belongs to another job" in out and "SAR_JOB_TOKEN" in out, (out, err)
    processes[1:] = [start(path, 1, 2, "127.0.0.1", port, **ours)]
    assert [(code, out) for code, out, _ in finish(processes)] == [(0, "SUM 11.0\n")] * 2


# ---- where a token comes from ----------------------------------------------------


def test_off_the_loopback_a_token_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**WITHOUT, "SAR_START_TIMEOUT": "1", "SAR_INSECURE": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(job_tokens, "_files", {})  # what other tests of this process have read
    address = network.get_socket().ip_addr
    if address.startswith("127."):
        pytest.skip("this host has the loopback alone")
    port = network.free_port()
    for rank in (0, 1):
        says = r"no job token, and .* sar launch .*SAR_JOB_TOKEN.*SAR_INSECURE=1"
        with pytest.raises(sar.RendezvousError, match=says):
            sar.initialize_comms(rank, 2, address, "sar", master_port_number=port)
    with pytest.raises(sar.RendezvousError, match="rank 1 of 2 did not come"):
        sar.initialize_comms(0, 2, address, "sar", master_port_number=port, job_token=job_tokens.fresh())
    monkeypatch.setenv("SAR_INSECURE", "1")
    with pytest.raises(sar.RendezvousError, match="rank 1 of 2 did not come"):
        sar.initialize_comms(0, 2, address, "sar", master_port_number=port)


def test_what_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    port = network.free_port()
    monkeypatch.setenv("SAR_JOB_TOKEN", "short")
    with pytest.raises(sar.RendezvousError, match="5 characters, at least 16.*secrets.token_hex"):
        sar.initialize_comms(0, 2, "127.0.0.1", "sar", master_port_number=port)
    with pytest.raises(TypeError, match="job_token is of type int"):
        sar.initialize_comms(0, 2, "127.0.0.1", "sar", master_port_number=port, job_token=5)  # type: ignore[arg-type]
    monkeypatch.setenv("SAR_TLS", "yes")
    with pytest.raises(ValueError, match="SAR_TLS='yes': give 1 or 0"):
        sar.initialize_comms(0, 2, "127.0.0.1", "sar", master_port_number=port)


def test_a_secret_that_is_none(tmp_path: Path) -> None:
    """The engine's own tests have the rest of this."""
    (tmp_path / "secret").write_text("0" * 64)
    (tmp_path / "secret").chmod(0o640)
    code = "from sar._engine import abi as _abi; _abi.job_token('7')"
    env = environment(SAR_SECRET_FILE=tmp_path / "secret")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert "ValueError: " in done.stderr and "can be read by others (mode 0640)" in done.stderr


def test_the_number_of_a_job_at_a_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in job_tokens._SCHEDULERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    assert job_tokens.scheduled(1) == ""
    seen = set()
    for variables in ({"SLURM_JOB_ID": "8"}, {"SLURM_STEP_ID": "1"}, {"SLURM_STEP_ID": "2"}, {"SLURM_JOB_ID": "9"}):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        seen |= {job_tokens.scheduled(port) for port in (1, 2)}
    assert len(seen) == 8 and all(len(token) == 64 for token in seen)


# ---- the file of nfs_ip_init -----------------------------------------------------

FROM_FILE = """
    value = torch.tensor([float(os.environ["SAR_TEST_VALUE"])])
    address = sar.nfs_ip_init(rank, os.environ["SAR_TEST_FILE"])
    print("READ", flush=True)
    try:
        sar.initialize_comms(rank, world, address, "sar", master_port_number=int(os.environ["MASTER_PORT"]))
        sar.comm.all_reduce(value, "sum")
        print("SUM", value.item(), flush=True)
    except sar.RendezvousError as error:
        print("REFUSED", error, flush=True)
"""


def test_a_token_by_file(tmp_path: Path) -> None:
    """Also where the file that a worker reads first is of an earlier run."""
    path, file, port = write_script(tmp_path, FROM_FILE), tmp_path / "address", network.free_port()
    more = {"SAR_TEST_FILE": file}
    reports = finish([start(path, rank, 2, "", port, **more) for rank in range(2)])
    assert [(code, out) for code, out, _ in reports] == [(0, "READ\nSUM 11.0\n")] * 2, reports
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    late = start(path, 1, 2, "", port, **more)
    assert late.stdout is not None and late.stdout.readline() == "READ\n"
    reports = finish([start(path, 0, 2, "", port, **more), late])
    assert [out.split("\n")[-2] for _, out, _ in reports] == ["SUM 11.0"] * 2, reports


def test_a_file_of_an_earlier_run(tmp_path: Path) -> None:
    path, file = write_script(tmp_path, FROM_FILE), tmp_path / "address"
    network.dump_ip_address(str(file))
    ((_, out, err),) = finish([start(path, 1, 2, "", network.free_port(), SAR_TEST_FILE=file, SAR_START_TIMEOUT=1)])
    says = r"REFUSED .*came from '.*address' \(written at .* by process \d+ on .*\): if an earlier run"
    assert re.search(says, out), (out, err)


def test_a_file_that_waits_for_the_token(tmp_path: Path) -> None:
    """Nobody gets the token by making a file beforehand, and a failure leaves none."""
    file = tmp_path / "address"
    with open(f"{file}.{os.getpid()}.tmp", "w+") as waiting:
        network.dump_ip_address(str(file))
        assert "job token" in file.read_text() and not waiting.read()
    os.unlink(waiting.name)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        network.dump_ip_address(str(tmp_path / "folder"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["address", "folder"]


def test_a_file_of_another_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    file = tmp_path / "address"
    network.dump_ip_address(str(file))
    os.chown(file, 65534, -1)
    with pytest.raises(sar.RendezvousError, match="belongs to user id 65534"):
        sar.nfs_ip_init(1, str(file))


# ---- torch's store ---------------------------------------------------------------


def test_a_token_by_the_store_of_torchrun(tmp_path: Path) -> None:
    body = f"""
        from sar._engine import abi as _abi
        given, opened = [], _abi.session_open
        _abi.session_open = lambda *args, **more: (given.append(more["job_token"]), opened(*args, **more))[1]
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        sar.initialize_comms(rank, world, address, "sar", master_port_number=port)
        value = torch.ones(1)
        sar.comm.all_reduce(value, "sum")
        open(os.path.join({str(tmp_path)!r}, f"token{{rank}}"), "w").write(given[0])
        sar.comm.shutdown()
    """
    path = write_script(tmp_path, body)
    place = ["--nproc-per-node=2", f"--master-port={network.free_port()}"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ((code, _, err),) = finish([torchrun(*place, path, env=environment(**WITHOUT), **pipes)])
    assert code == 0, err
    tokens = [(tmp_path / f"token{rank}").read_text() for rank in range(2)]
    assert tokens[0] == tokens[1] and re.fullmatch("[0-9a-f]{64}", tokens[0])
