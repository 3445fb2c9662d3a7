"""One case: its hosts and workers, the fault, and the end of them all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import select
import signal
import time
from pathlib import Path
from typing import Any, Iterator

from tests.support.machines import Machine, NoMachines, machines, run

from . import job
from .case import GRACE, START, Case
from .kinds import KINDS, Target

SCRATCH_BYTES, MEMORY_BYTES = 1 << 20, 16 << 20  # of a host's disk, and of its /dev/shm
LIMIT = 90.0  # seconds that any case may take, a backstop


@dataclasses.dataclass
class Worker:
    """What is known of one rank."""

    rank: int
    pid: int
    pipe: int
    phase: str = ""  # the last that it reported
    at: float = 0.0  # when
    epoch: int = 0
    done: dict[str, Any] | None = None  # losses and parameters
    error: dict[str, Any] | None = None
    ended: float = 0.0  # when its process was found to have ended
    status: int | None = None  # exit code, or minus the signal
    pending: bytes = b""


@dataclasses.dataclass
class Outcome:
    """What came of a case; it travels between processes."""

    case: Case
    workers: list[dict[str, Any]]
    struck: float = 0.0  # when the fault struck, 0 if it never did
    missed: bool = True  # it did not, or when its victim had ended
    hung: str = ""
    left: list[str] = dataclasses.field(default_factory=list)
    failure: str = ""  # of the harness itself
    seconds: float = 0.0


def perform(case: Case, folder: Path) -> Outcome:
    """Runs a case. Logs of its workers are left in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    began = time.monotonic()
    outcome = Outcome(case, [])
    with machines(case.hosts) as hosts:
        for host in hosts:
            run(host.inside, "mount", "-o", f"remount,size={MEMORY_BYTES}", "/dev/shm")
            run(host.inside, "mount", "-t", "tmpfs", "-o", f"size={SCRATCH_BYTES}", "none", str(scratch))
        workers = _start(case, hosts, scratch, folder)
        try:
            _watch(case, workers, hosts, scratch, outcome)
        finally:
            for worker in workers:
                if worker.status is None:
                    os.kill(worker.pid, signal.SIGKILL)
                    os.waitpid(worker.pid, 0)
                os.close(worker.pipe)
        outcome.left = [left for host in hosts for left in _left(host, {w.pid for w in workers})]
    outcome.workers = [dataclasses.asdict(worker) for worker in workers]
    outcome.seconds = time.monotonic() - began
    (folder / "outcome.json").write_text(json.dumps(dataclasses.asdict(outcome), indent=1, default=str))
    return outcome


def _start(case: Case, hosts: list[Machine], scratch: Path, folder: Path) -> list[Worker]:
    master = "127.0.0.1" if case.layout == "shm" else hosts[0].address
    workers = []
    for rank in range(case.world):
        host = hosts[case.host(rank)]
        pid, pipe = job.start(case, rank, host, master, scratch, folder / f"rank{rank}.log")
        os.set_blocking(pipe, False)
        workers.append(Worker(rank, pid, pipe, at=time.monotonic()))
    return workers


def _watch(case: Case, workers: list[Worker], hosts: list[Machine], scratch: Path, outcome: Outcome) -> None:
    """Follows the workers to their ends, and has the fault strike."""
    target = Target(case, random.Random(case.seed + 1), [w.pid for w in workers], hosts, scratch)
    steps: Iterator[float] | None = None
    due = None  # when the fault's next step is
    deadline = KINDS[case.kind].deadline if case.kind in KINDS else LIMIT
    if case.phase in ("born", "met", "built"):
        deadline = max(deadline, START)
    end = time.monotonic() + LIMIT
    while any(w.status is None for w in workers):
        _listen(workers, 0.02 if due is None else max(0.0, min(0.02, due - time.monotonic())))
        now = time.monotonic()
        victim = workers[case.victim]
        if due is None and steps is None and case.kind in KINDS and _reached(victim, case):
            due, steps = victim.at + case.delay, KINDS[case.kind].fault(target)
        if due is not None and steps is not None and now >= due:
            if not outcome.struck:
                outcome.struck, outcome.missed = now, victim.status is not None
            # The victim may end at any time; what fails then has nobody left to strike.
            try:
                due = time.monotonic() + next(steps)
            except StopIteration:
                due = None
            except (ProcessLookupError, FileNotFoundError):
                due = None
            except NoMachines as error:
                outcome.failure, due = str(error), None
        limit = deadline + GRACE
        quiet = now - max([w.at for w in workers] + [due or 0.0, outcome.struck])
        errors = [w.at for w in workers if w.error]
        if now > end or due is None and (quiet > limit or errors and now - max(outcome.struck, min(errors)) > limit):
            alive = [w for w in workers if w.status is None]
            if not alive:
                return
            outcome.hung = "; ".join(f"rank {w.rank} after {w.phase!r}" for w in alive)
            outcome.hung += f": {quiet:.1f} s of silence, "
            outcome.hung += f"{now - outcome.struck:.1f} s after the fault" if outcome.struck else "before the fault"
            _dump(alive)
            return


def _reached(worker: Worker, case: Case) -> bool:
    return worker.phase == case.phase and worker.epoch >= case.epoch


def _listen(workers: list[Worker], seconds: float) -> None:
    """Takes what workers report, and who has ended."""
    ready, _, _ = select.select([w.pipe for w in workers if w.status is None], [], [], seconds)
    for worker in workers:
        if worker.pipe in ready:
            _read(worker)
        if worker.status is None:
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                _read(worker)
                worker.status, worker.ended = os.waitstatus_to_exitcode(status), time.monotonic()


def _read(worker: Worker) -> None:
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(worker.pipe, 1 << 16):
            worker.pending += piece
    *lines, worker.pending = worker.pending.split(b"\n")
    for line in lines:
        facts = json.loads(line)
        worker.phase, worker.at, worker.epoch = facts["phase"], facts["time"], facts.get("epoch", 0)
        if worker.phase == "trained":
            worker.done = {"losses": facts["losses"], "parameters": facts["parameters"]}
        elif worker.phase == "error":
            worker.error = facts


def _dump(workers: list[Worker]) -> None:
    """Has workers that hang write into their logs what their goroutines wait for."""
    for worker in workers:
        os.kill(worker.pid, signal.SIGCONT)
        os.kill(worker.pid, signal.SIGQUIT)
    time.sleep(0.5)


def _left(machine: Machine, known: set[int]) -> list[str]:
    """What is still on a host: processes, sockets that listen, files in shared memory."""
    found = []
    space = os.stat(f"/proc/{machine.pid}/ns/net").st_ino
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and int(name) != machine.pid and os.stat(f"/proc/{name}/ns/net").st_ino == space:
                found.append(f"process {name}" + (" (a worker)" if int(name) in known else ""))
    found += [f"a listener, {line}" for line in run(machine.inside, "ss", "-tlnH").splitlines()]
    found += [f"a socket, {line}" for line in run(machine.inside, "ss", "-xaH").splitlines() if "@sar" in line]
    files = os.listdir(f"/proc/{machine.pid}/root/dev/shm")
    return found + [f"/dev/shm/{name}" for name in files if name != "filler"]
