"""What runs on the workers to kill one of them before every step of writing a checkpoint."""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any

import torch

import sar
from sar.checkpoints.save import Write
from tests.distributed.cases_checkpoints import Job

# What changes files, or opens one. Audit events tell of each just before it is done.
_STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def killed(json: str, folder: str, victim: int) -> list[tuple[bool, int, list[str]]]:
    """Rank ``victim`` is killed in the middle of its file, then before the first step of writing, before the second,
    and so on.

    :returns: whether it was killed; which step of training is loaded then; and the names in the directory when the next
        checkpoint has been saved
    """
    job = Job(json, 0.3)
    found = []
    while not found or found[-1][0]:
        directory = os.path.join(folder, str(len(found)))
        sar.save_checkpoint(directory, **job.saved, step=1, keep=1)
        values = {1: _values(job)}
        job.epoch()
        values[2] = _values(job)
        write = Write(directory, **job.saved, step=2, extra=None, per_node=None, keep=1)
        died = _write(write, victim, len(found) - 1)
        loaded = sar.load_checkpoint(directory, **job.saved)
        assert loaded is not None
        for name, value in _values(job).items():
            assert torch.equal(value, values[loaded.step][name]), f"{name} is not that of step {loaded.step}"
        sar.save_checkpoint(directory, **job.saved, step=3, keep=1)
        found.append((died, loaded.step, sorted(name[:17] for name in os.listdir(directory))))
    return found


def _values(job: Job) -> dict[str, torch.Tensor]:
    parameters = [pair for model in job.saved["model"].values() for pair in model.named_parameters()]
    return {name: value.detach().clone() for name, value in parameters}


def _write(write: Write, victim: int, step: int) -> bool:
    """Has a copy of this process write this rank's part; that of the victim is killed before a step, and then the one
    that waits for it. Whether it came to that. Collective."""
    child = os.fork()
    if not child:
        if write.rank == victim:
            _die_before(step, write.directory)
        write._run()
        os._exit(0)
    died = torch.zeros(())
    if write.rank == victim:
        died += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    sar.comm.all_reduce(died, "sum")
    if write.rank != victim:
        if died and write.rank == 0:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    sar.comm.barrier()
    return bool(died)


def _die_before(step: int, directory: str) -> None:
    if step < 0:  # the kernel ends who writes more than this into a file
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        return
    left = step

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in _STEPS or not str(arguments[0]).startswith((directory, "step-", ".step-")):
            return
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    sys.addaudithook(hook)
