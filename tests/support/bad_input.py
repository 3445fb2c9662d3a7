"""What the tests of bad input share: a small graph on disk, and scripts that run as plain processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sar.cli.dataset import Dataset
from sar.distributed.network import free_port

N, E, PARTS = 30, 100, 2


def graph_file(path: Path, **changes: Any) -> str:
    rng = np.random.default_rng(3)
    arrays = {
        "edge_index": rng.integers(0, N, (2, E)),
        "x": rng.random((N, 3), dtype=np.float32),
        "y": np.arange(N) % 4,
        "w": rng.random(E, dtype=np.float32),
    }
    np.savez(path, **{**arrays, **changes})
    return str(path)


def partition(folder: Path, parts: int = PARTS, *, checksums: bool = False) -> Path:
    """A graph in parts. Without checksums, as from DGL: they would notice all damage, before what reads the files can
    show what it does about it."""
    with Dataset(graph_file(folder / "g.npz")) as dataset:
        dataset.write((np.arange(N) % parts).astype(np.int32), parts, str(folder), "g", "random")
    if not checksums:
        description = json.loads((folder / "g.json").read_text())
        del description["checksum"]
        for part in range(parts):
            del description[f"part-{part}"]["checksums"]
        (folder / "g.json").write_text(json.dumps(description))
    return folder / "g.json"


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
    processes = [
        subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(RANK=rank, **place),
        )
        for rank in range(world)
    ]
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return [(process.returncode, *output) for process, output in zip(processes, outputs)]
