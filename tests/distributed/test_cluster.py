"""A job of Slurm on three hosts behind firewalls: a worker is killed, and the job goes on with two hosts.

Hosts are network namespaces, which need root; ``tests/support/slurm.py`` takes the place of Slurm. The script and the
file for ``sbatch`` are those of docs/running/cluster.md.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support import ROOT
from tests.support.command import run_sar
from tests.support.machines import NoMachines, machines, open_ports
from tests.support.slurm import Cluster

SCRIPT = ROOT / "examples" / "more" / "checkpoints.py"
BATCH = ROOT / "examples" / "launch" / "train.sbatch"
EPOCHS = 60
DEADLINE = 120.0


def curve(text: str) -> dict[int, float]:
    """Losses by epoch."""
    return {int(epoch): float(loss) for epoch, loss in re.findall(r"epoch +(\d+)  loss ([\d.]+)", text)}


def wait_for(text: str, log: Path, job: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + DEADLINE
    while text not in log.read_text():
        assert job.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def worker(job: subprocess.Popen[bytes], rank: int) -> int:
    """The process of a rank, which its node's shell has become."""
    for process in psutil.Process(job.pid).children(recursive=True):
        if process.environ().get("SLURM_PROCID") == str(rank):
            return process.pid
    raise AssertionError(f"rank {rank} does not run")


@pytest.mark.full
def test_killed_on_three_hosts_goes_on_with_two(tmp_path: Path) -> None:
    pytest.importorskip("dgl")
    for parts in (3, 2):
        out = tmp_path / "parts" / str(parts)
        done = run_sar("partition", ROOT / "examples/data/cora.npz", "--parts", parts, "--self-loops", "--out", out)
        assert done.returncode == 0, done.stderr

    def words(nodes: int, directory: str) -> list[str]:
        return [str(SCRIPT), str(tmp_path / "parts" / str(nodes) / "cora.json"), str(tmp_path / directory), str(EPOCHS)]

    whole = run_sar("launch", "-n", 2, *words(2, "whole"))
    assert whole.returncode == 0, whole.stderr
    expected = curve(whole.stdout)
    assert sorted(expected) == list(range(10, EPOCHS + 1, 10))
    try:
        with machines(3) as found:
            open_ports(found, 29400, 29400)
            cluster = Cluster(found, tmp_path)
            environment = {"SAR_PORT_RANGE": "29400-29400", "SAR_SECRET_FILE": str(tmp_path / "secret")}

            def start(nodes: int, log: Path, **more: str) -> subprocess.Popen[bytes]:
                options = [f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=1"]
                return cluster.sbatch([*options, str(BATCH), *words(nodes, "run")], log, **environment, **more)

            first, second = tmp_path / "first.log", tmp_path / "second.log"
            job = start(3, first, RESTARTS="1")
            try:
                for epoch in (20, 40):
                    wait_for(f"epoch  {epoch}", first, job)
                    os.kill(worker(job, 1), signal.SIGKILL)
                    if epoch == 20:
                        wait_for("node2: task 1: Killed", first, job)
                assert job.wait(DEADLINE) == 1
            finally:
                job.kill()
            shown = first.read_text()
            assert shown.count("node2: task 1: Killed") == shown.count("0: 3 workers begin with epoch") == 2
            job = start(2, second)
            try:
                assert job.wait(DEADLINE) == 0, second.read_text()
            finally:
                job.kill()
    except NoMachines as why:
        pytest.skip(f"no network namespaces: {why}")
    begin = int(re.findall(r"0: 2 workers begin with epoch (\d+)", second.read_text())[0])
    assert begin in (21, 31, 41)  # the last checkpoint that was complete
    assert {epoch: loss for epoch, loss in expected.items() if epoch <= 40} == pytest.approx(curve(shown), rel=1e-4)
    assert {epoch: loss for epoch, loss in expected.items() if epoch >= begin} == pytest.approx(
        curve(second.read_text()), rel=1e-4
    )
