"""A job that is attacked: its workers, their ports, and what they say at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sar.distributed.network import free_port
from tests.support import warm
from tests.support.scripts import environment

HERE = Path(__file__).parent
TOKEN = "the token of the job that is attacked"
LISTEN, LOOPBACK = "0A", "0100007F"  # as the kernel writes them

# Prints a digest of all that was computed, and the most memory that the process had.
WORKER = """
import hashlib, json, os, sys, time
import torch
import sar
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sar.initialize_comms(rank, world, "127.0.0.1", "sar", master_port_number=int(os.environ["MASTER_PORT"]))
print("met", flush=True)
digest = hashlib.sha256()
for step in range(int(os.environ["SAR_TEST_STEPS"])):
    torch.manual_seed(1000 * step + rank)
    value = torch.randn(3000)
    sar.comm.all_reduce(value, "sum")
    rows = [torch.empty(500) for _ in range(world)]
    sar.comm.all_to_all(rows, [value[:500] * (rank + 1) for _ in range(world)])
    digest.update(value.numpy().tobytes() + torch.cat(rows).numpy().tobytes())
    time.sleep(0.02)
sar.comm.shutdown()
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0]
print(json.dumps({"digest": digest.hexdigest(), "peak": int(peak.split()[1]) << 10}), flush=True)
"""


class Job:
    """Three workers on loopback."""

    def __init__(self, transport: str, steps: int, world: int = 3) -> None:
        self.port, self.world = free_port(), world
        self.environment = environment(
            WORLD_SIZE=world, MASTER_PORT=self.port, SAR_TRANSPORT=transport, SAR_JOB_TOKEN=TOKEN, SAR_TEST_STEPS=steps
        )
        self.workers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.communicate()

    def start(self, rank: int) -> None:
        self.workers.append(warm.piped(["-c", WORKER], env={**self.environment, "RANK": str(rank)}))

    def await_listener(self, patience: float = 60.0) -> None:
        """Waits until rank 0 listens, for calls and for links at one port."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            found = listening(self.workers[0].pid)
            if found:
                assert found == [self.port]
                return
            time.sleep(0.05)
        raise TimeoutError(f"rank 0 does not listen: {self.workers[0].communicate(timeout=1)}")

    def met(self) -> None:
        """Returns when the workers have met."""
        for worker in self.workers:
            assert worker.stdout is not None
            line = worker.stdout.readline()
            assert line == "met\n", (line, worker.communicate())

    def finish(self) -> list[dict[str, Any]]:
        """What the workers say at the end."""
        reports = []
        for worker in self.workers:
            out, err = worker.communicate(timeout=240)
            assert worker.returncode == 0, (out, err)
            reports.append(json.loads(out.splitlines()[-1]))
        return reports


def listening(pid: int) -> list[int]:
    """TCP ports at which a process listens."""
    own = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            own.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == LISTEN and f"socket:[{words[9]}]" in own:
            address, port = words[1].split(":")
            assert address == LOOPBACK, f"process {pid} listens on {address}:{port}"
            found.append(int(port, 16))
    everywhere = Path("/proc/net/tcp6")
    if everywhere.exists():
        assert not [line for line in everywhere.read_text().splitlines() if f"socket:[{line.split()[9]}]" in own]
    return found


class Attackers:
    """Processes that attack ports until the end of the block."""

    def __init__(self) -> None:
        self.processes: list[tuple[str, subprocess.Popen[str]]] = []

    def start(self, kinds: Sequence[str], count: int, ports: Sequence[int], uid: int = 0) -> None:
        for kind in kinds:
            words = [kind, str(count), str(uid), *map(str, ports)]
            process = subprocess.Popen(
                [sys.executable, str(HERE / "attacks.py"), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "SAR_ATTACK_TOKEN": TOKEN},
            )
            self.processes.append((kind, process))
        for kind, process in self.processes[-len(kinds) :]:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "ready\n", (kind, line, process.communicate())

    def stop(self) -> dict[str, dict[str, int]]:
        """What each opened, and how many of its connections were let in."""
        told: dict[str, dict[str, int]] = {}
        for _, process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        for kind, process in self.processes:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, (kind, out, err)
            one = json.loads(out.splitlines()[-1])
            told[kind] = {name: one[name] + told.get(kind, {}).get(name, 0) for name in one}
        self.processes = []
        return told

    def __enter__(self) -> Attackers:
        return self

    def __exit__(self, *_: object) -> None:
        for _, process in self.processes:
            process.kill()
            process.communicate()
