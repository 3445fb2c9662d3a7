"""One job, the kills, and what is left of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, NamedTuple

import psutil

from sar.distributed.network import free_port
from tests.support import ROOT
from tests.support.partitions import partition

from .job import EPOCHS

WORKERS = 3
DEADLINE = 120.0
"""Seconds that anything may take."""
JOB = ["-m", "tests.kills.job"]


class Outcome(NamedTuple):
    """``kills``: how many workers were killed; ``wrong``: what is not as it must be, "" where all is well."""

    kills: int
    wrong: str


def commands(launcher: str, restarts: int) -> list[str]:
    """How a launcher starts the workers, up to the script."""
    if launcher == "sar":
        return [sys.executable, "-m", "sar", "launch", "-n", str(WORKERS), "--max-restarts", str(restarts)]
    own = ["--nproc-per-node", str(WORKERS), "--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    where = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [sys.executable, "-m", "torch.distributed.run", *own, *where]


def job(
    folder: Path, launcher: str, kills: int, seed: int, start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
) -> Outcome:
    """Runs a job, and kills a worker so many times, if it lasts that long.

    :param folder: empty; what the workers write goes there
    :param start: starts the launcher's process
    """
    rng = random.Random(seed)
    (folder / "parts").mkdir(parents=True)
    json = partition(folder / "parts", WORKERS)
    with (folder / "log").open("wb") as log:
        process = start(
            [*commands(launcher, kills), *JOB, str(json), str(folder)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "SAR_START_TIMEOUT": "60", "SAR_TIMEOUT": "60"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    done = 0
    try:
        life: set[int] = set()
        for _ in range(kills):
            life = _next_life(process, life)
            if not _kill(process, life, folder, rng):
                break
            done += 1
            left = _left_after(process, life)
            if left:
                return Outcome(done, f"left behind by a life that ended: {', '.join(left)}")
        code = process.wait(DEADLINE)
    except subprocess.TimeoutExpired:
        return Outcome(done, f"the job did not end within {DEADLINE:g} s")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code != 0:
        return Outcome(done, f"exit code {code}: {(folder / 'log').read_text()[-3000:]}")
    return Outcome(done, _checkpoints(folder))


def _kill(process: subprocess.Popen[bytes], life: set[int], folder: Path, rng: random.Random) -> bool:
    """Kills a worker of a life: somewhere on its way to the first epoch, or while a checkpoint is written, or in an
    epoch, or while it ends."""
    when = rng.random()
    if when < 0.3:
        time.sleep(rng.random() * 4)
    elif when < 0.6:
        _wait_for(lambda: any((folder / "run").glob(".step-*.partial")), process, 0.001)
        time.sleep(rng.random() * 0.03)
    else:
        size = _size(folder / "losses")
        _wait_for(lambda: _size(folder / "losses") > size, process)
        time.sleep(rng.random() * 0.6)
    alive = sorted(_alive(life))
    if process.poll() is not None or not alive:
        return False
    os.kill(rng.choice(alive), signal.SIGKILL)
    return True


def _next_life(process: subprocess.Popen[bytes], last: set[int]) -> set[int]:
    """The processes of the workers that were started after ``last``."""
    found: set[int] = set()

    def complete() -> bool:
        nonlocal found
        found = _workers(process.pid) - last if process.poll() is None else set()
        return len(found) == WORKERS

    _wait_for(complete, process)
    return found


def _left_after(process: subprocess.Popen[bytes], life: set[int]) -> list[str]:
    """What does not go of a life: workers, and their sockets, which the kernel closes a little after a worker's end."""

    def left() -> list[str]:
        return [f"worker {pid}" for pid in _alive(life)] + _sockets(life)

    _wait_for(lambda: not left(), process)
    return left()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], every: float = 0.02) -> None:
    """Waits until a condition holds, the job has ended, or time is up."""
    end = time.monotonic() + DEADLINE
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(every)


def _workers(launcher: int) -> set[int]:
    found = set()
    for child in psutil.Process(launcher).children():
        try:
            if JOB[1] in (child.name(), *child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                found.add(child.pid)
        except psutil.Error:
            continue
    return found


def _alive(life: set[int]) -> set[int]:
    found = set()
    for pid in life:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.add(pid)
        except psutil.Error:
            continue
    return found


def _sockets(life: set[int]) -> list[str]:
    """Names of the sockets without a file that workers had. Their segments and ports have no name that could stay: they
    go with the process."""
    names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [name for name in names for pid in life if name.startswith(f"@sar-{pid}-")]


def _checkpoints(folder: Path) -> str:
    names = sorted(os.listdir(folder / "run"))
    right = len(names) == 3 and names[0] == "latest" and (folder / "run" / "latest").read_text().strip() == names[2]
    return "" if right else f"checkpoints: {names}"


def losses(folder: Path) -> dict[int, set[str]]:
    """What was computed for every epoch, in all lives."""
    found: dict[int, set[str]] = {}
    for line in (folder / "losses").read_text().splitlines():
        epoch, loss = line.split()
        found.setdefault(int(epoch), set()).add(loss)
    return found


def compare(folder: Path, undisturbed: dict[int, set[str]]) -> str:
    """How the losses of a job differ from those of one in which nobody was killed; "" where they do not."""
    found = losses(folder)
    if sorted(found) != list(range(1, EPOCHS + 1)):
        return f"epochs {sorted(found)}"
    wrong = [epoch for epoch in found if found[epoch] != undisturbed[epoch]]
    return f"other losses in epochs {wrong}" if wrong else ""
