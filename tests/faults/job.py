"""The training job of a case, and how its workers start and report."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import io
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch

import sar
import sar.nn
from tests.support.machines import Machine
from tests.support.worker import build

from .case import EPOCHS, LIVENESS, OPERATION, PAUSE, START, Case

PORT = 29500
ROWS, DEGREE, FEATURES, HIDDEN, CLASSES = 1500, 8, 48, 64, 7

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUTS, _PR_SET_PDEATHSIG = 0x04000000, 1


def preload() -> None:
    """Imports what torch imports late, some 900 modules, once and not in every worker."""
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def start(case: Case, rank: int, machine: Machine, master: str, scratch: Path, log: Path) -> tuple[int, int]:
    """Forks a worker: its process, and the pipe on which it reports. It dies with this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become(case, rank, machine, log, writing)
            os._exit(_work(case, rank, master, scratch, writing))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    os.close(writing)
    return pid, reading


def _become(case: Case, rank: int, machine: Machine, log: Path, keep: int) -> None:
    """Makes a process of its own of what was forked, on the worker's host."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, keep)
    os.closerange(keep + 1, 4096)
    for name in ("net", "mnt"):
        _check(_libc.setns(os.open(f"/proc/{machine.pid}/ns/{name}", os.O_RDONLY), 0), f"setns {name}")
    os.closerange(keep + 1, 4096)
    _check(_libc.unshare(_CLONE_NEWUTS), "unshare")
    socket.sethostname(f"host{case.host(rank)}")
    ease = 5 if case.kind == "none" else 1  # nobody is to be lost on a busy machine
    os.environ.update(
        SAR_TRANSPORT={"shm": "shm", "mixed": "auto"}.get(case.layout, "tcp"),
        SAR_START_TIMEOUT=str(ease * START),
        SAR_LIVENESS_TIMEOUT=str(ease * LIVENESS),
        SAR_TIMEOUT=str(ease * OPERATION),
        SAR_NUM_THREADS="1",
        SAR_JOB_TOKEN=f"{case.seed:032x}",
        SAR_TLS="1" if case.layout == "tls" else "0",
    )
    atexit._clear()  # what the parent registered is not this process's to run


def _check(status: int, what: str) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), what)


def _work(case: Case, rank: int, master: str, scratch: Path, pipe: int) -> int:
    """What a script does from its first line to its last: an exception that nothing catches, exit handlers."""

    def report(phase: str, **facts: Any) -> None:
        facts.update(phase=phase, time=time.monotonic())
        os.write(pipe, (json.dumps(facts) + "\n").encode())

    code = 0
    try:
        train(case, rank, master, scratch, report)
    except BaseException as error:
        report(
            "error",
            kind=type(error).__name__,
            message=str(error)[:8000],
            rank=getattr(error, "rank", None),
            ours=isinstance(error, _OURS),
        )
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    atexit._run_exitfuncs()
    report("left")
    return code


_OURS = (sar.PeerLostError, sar.ScheduleError, sar.RendezvousError, sar.DeadlineError, sar.FormatError, sar.BudgetError)


def train(case: Case, rank: int, master: str, scratch: Path, report: Callable[..., None]) -> None:
    """Trains and reports every phase; ``trained`` carries the losses and a hash of the parameters, to the bit."""
    rng = random.Random(case.seed * 64 + rank)

    def pace(phase: str, epoch: int) -> None:
        report(phase, epoch=epoch)
        time.sleep(rng.random() * PAUSE)  # so that some wait for others, and the job lasts

    report("born")
    time.sleep(rng.random() * 0.6)  # workers do not come at once
    sar.initialize_comms(rank, case.world, master, "sar", master_port_number=PORT)
    report("met")
    graph, x, labels = _data(rank, case.world)
    report("built")
    torch.manual_seed(7)
    model = _Model(case.model)
    sar.sync_params(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for epoch in range(EPOCHS):
        pace("forward", epoch)
        loss = torch.nn.functional.cross_entropy(model(graph, x), labels, reduction="sum") / (ROWS * case.world)
        pace("backward", epoch)
        optimizer.zero_grad()
        loss.backward()
        pace("reduce", epoch)
        sar.gather_grads(model)
        optimizer.step()
        total = loss.detach().clone()
        sar.comm.all_reduce(total, "sum")
        losses.append(float(total).hex())
        pace("checkpoint", epoch)
        if rank == case.victim:
            _checkpoint(scratch / f"checkpoint-{rank}.pt", model)
    state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    report("trained", losses=losses, parameters=hashlib.sha256(state).hexdigest())
    sar.comm.shutdown()


def _data(rank: int, world: int) -> tuple[sar.GraphShardManager, torch.Tensor, torch.Tensor]:
    """This rank's part of a random graph, whose edges come from anywhere."""
    rng = np.random.default_rng(rank)
    start = np.arange(world + 1) * ROWS
    own = np.arange(start[rank], start[rank + 1])
    dst = np.concatenate([np.repeat(own, DEGREE), own])
    src = np.concatenate([rng.integers(0, start[-1], len(own) * DEGREE), own])
    x = torch.from_numpy(rng.standard_normal((ROWS, FEATURES), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, CLASSES, ROWS))
    return build({"start": start, "src": src, "dst": dst}), x, labels


class _Model(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        if name == "sage":
            self.one: torch.nn.Module = sar.nn.SAGEConv(FEATURES, HIDDEN, "mean")
            self.two: torch.nn.Module = sar.nn.SAGEConv(HIDDEN, CLASSES, "mean")
        else:
            self.one = sar.nn.GATConv(FEATURES, HIDDEN // 4, 4)
            self.two = sar.nn.GATConv(HIDDEN, CLASSES, 1)

    def forward(self, graph: sar.GraphShardManager, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.one(graph, x).flatten(1))
        return self.two(graph, h).flatten(1)


def _checkpoint(path: Path, model: torch.nn.Module) -> None:
    """Written as a script should: never over the last good one, and known to be on the disk."""
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(buffer.getbuffer())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
