"""Hosts that let each other reach two ports alone, and have two workers each. Needs root and network namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import run_sar
from tests.support.machines import Machine, NoMachines, machines, open_ports

FIRST, LAST = 29400, 29401
WORKER = """
import os, torch, sar
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sar.initialize_comms(rank, world, os.environ["MASTER_ADDR"], "sar", master_port_number=int(os.environ["MASTER_PORT"]))
total = torch.full((1000,), float(rank + 1))
sar.comm.all_reduce(total, "sum")
received = [torch.zeros(10) for _ in range(world)]
sar.comm.all_to_all(received, [torch.full((10,), 10.0 * rank + peer) for peer in range(world)])
print("total", int(total[0]), "from", [int(part[0]) for part in received])
sar.comm.shutdown()
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[list[Machine], str]]:
    """Two machines behind firewalls, and what takes the place of ssh to reach them."""
    try:
        with machines(2) as found:
            open_ports(found, FIRST, LAST)
            cases = "\n".join(f'{m.address}) exec {" ".join(m.inside)} sh -c "$*";;' for m in found)
            ssh = tmp_path / "ssh"
            skip = 'while :; do case "$1" in -o) shift 2;; -*) shift;; *) break;; esac; done'
            ssh.write_text(f'#!/bin/sh\n{skip}\nhost=$1; shift\ncase "$host" in\n{cases}\nesac\n')
            ssh.chmod(0o755)
            yield found, str(ssh)
    except NoMachines as why:
        pytest.skip(f"no network namespaces: {why}")


@pytest.mark.parametrize("transport", ["auto", pytest.param("tcp", marks=pytest.mark.full)])
def test_two_ports_for_two_workers(hosts: tuple[list[Machine], str], tmp_path: Path, transport: str) -> None:
    places, ssh = hosts
    (tmp_path / "worker.py").write_text(WORKER)
    words = ["--hosts", ",".join(f"{m.address}:2" for m in places), "--ssh", ssh, "--transport", transport]
    environment = {"SAR_PORT_RANGE": f"{FIRST}-{LAST}", "SAR_START_TIMEOUT": "60"}
    done = run_sar("launch", *words, tmp_path / "worker.py", **environment)
    assert done.returncode == 0, done.stderr
    expected = [f"[{r}] total 10 from {[10 * q + r for q in range(4)]}" for r in range(4)]
    assert sorted(done.stdout.splitlines()) == expected


def test_the_firewall_is_there(hosts: tuple[list[Machine], str], tmp_path: Path) -> None:
    """Without the range workers listen where nobody can reach them."""
    places, ssh = hosts
    (tmp_path / "worker.py").write_text(WORKER)
    words = ["--hosts", ",".join(f"{m.address}:1" for m in places), "--ssh", ssh, "--grace", "1"]
    done = run_sar("launch", *words, tmp_path / "worker.py", SAR_START_TIMEOUT="4")
    assert done.returncode == 1 and "RendezvousError" in done.stderr and "firewall" in done.stderr
