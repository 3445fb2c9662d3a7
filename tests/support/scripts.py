"""Scripts that run as plain processes, one for each rank."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sar.distributed.network import free_port
from tests.support import warm

PREAMBLE = """\
import atexit, os, sys, time
import torch
import sar
import sar.function as fn
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def join(rank, world):
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    sar.initialize_comms(rank, world, address, "sar", master_port_number=port)

"""


def write_script(folder: Path, body: str) -> Path:
    lines = body.strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    path = folder / "script.py"
    path.write_text(PREAMBLE + "\n".join(line[indent:] for line in lines) + "\n")
    return path


def environment(**more: object) -> dict[str, str]:
    here = {"OMP_NUM_THREADS": "1", "SAR_START_TIMEOUT": "60", "SAR_TIMEOUT": "90"}
    return {**os.environ, **here, **{k: str(v) for k, v in more.items()}}


def together(folder: Path, body: str, world: int) -> list[tuple[int, str, str]]:
    """Plain processes, started by nobody in particular: exit code, output and errors of each rank."""
    path = write_script(folder, body)
    place = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return finish([warm.piped([str(path)], env=environment(RANK=rank, **place)) for rank in range(world)])


def finish(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each."""
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return [(process.returncode, *output) for process, output in zip(processes, outputs)]
