"""Partitioners that run in a process of their own: such a library reads a file, may end the process, and does not
listen to Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from sar.data.ingest.progress import Stages

from . import weights
from .dataset import Dataset
from .hosts import by_hosts, without_empty_parts
from .options import Options, PartitioningError

_POLL_SECONDS = 0.05


class Program(NamedTuple):
    """A partitioner, and what its process is told."""

    title: str
    library: str
    """What the process runs, which imports it."""
    least: Callable[[int, int], int]
    """Bytes that it takes at least, for so many nodes and neighbours."""
    mode: Callable[[int, int, int], Optional[str]]
    """The last argument of the process, for so many nodes, neighbours and bytes of memory; None where those do not
    do."""
    one_thread: int
    """Neighbours up to which one thread cuts: it repeats itself, and is fast enough."""


def cut_apart(program: Program, dataset: Dataset, options: Options, stage: Stages) -> np.ndarray:
    """The assignment int32 ``[num_nodes]`` of a program. Several kinds of balance are weighed together. The data set is
    undirected already.

    :raises PartitioningError: the memory does not do, or the program failed
    """
    weight = weights.combined(dataset, options.balance)

    def cut(parts: int, imbalance: float, hosts: Optional[np.ndarray], host: int) -> np.ndarray:
        with tempfile.TemporaryFile(dir=options.scratch) as graph, tempfile.TemporaryFile(dir=options.scratch) as out:
            what = "the graph" if hosts is None else f"host {host}"
            with stage(f"writing {what} for {program.title}"):
                path = f"/proc/self/fd/{graph.fileno()}"
                nodes, neighbours = dataset.write_parhip(path, weight, hosts, host)
            if parts == 1 or nodes <= parts or neighbours == 0:
                return (np.arange(nodes) % parts).astype(np.int32)
            mode = program.mode(nodes, neighbours, options.memory)
            if mode is None:
                raise PartitioningError(
                    f"{program.title} needs about {program.least(nodes, neighbours) >> 20} MiB for {nodes:,} nodes and "
                    f"{neighbours:,} neighbours, and may take {options.memory >> 20} MiB: give more with --memory, or "
                    "choose --method fennel"
                )
            with stage(f"cutting {nodes:,} nodes and {neighbours:,} neighbours into {parts} with {program.title}"):
                threads = 1 if neighbours < program.one_thread else len(os.sched_getaffinity(0))
                words = [graph.fileno(), out.fileno(), parts, options.seed, threads, nodes, neighbours]
                _run(program, [*words, imbalance, mode], (graph.fileno(), out.fileno()), options.memory)
            out.seek(0)
            found = np.fromfile(out, np.int32)
        if len(found) != nodes or found.min() < 0 or found.max() >= parts:
            raise PartitioningError(f"{program.title} gave {len(found)} parts for {nodes} nodes, or parts out of range")
        return without_empty_parts(found, parts)

    return by_hosts(cut, options)


def _run(program: Program, words: list[object], files: tuple[int, ...], memory: int) -> None:
    """Runs the process to its end. It does not outlive this one, nor a failure here, nor its memory."""
    source = Path(__file__).with_name("apart_process.py").read_text(encoding="utf-8")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-c", source, program.library, *map(str, [os.getpid(), *words])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=files,
        )
        try:
            most = 0
            while process.poll() is None:
                most = max(most, _resident(process.pid))
                if most > memory:
                    raise PartitioningError(
                        f"{program.title} took {most >> 20} MiB, and may take {memory >> 20} MiB: give more with "
                        "--memory, or choose --method fennel"
                    )
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").split("\n")
    if process.returncode != 0 or "done" not in lines:
        how = f"ended with {process.returncode}"
        if process.returncode < 0:
            how = f"was killed by signal {-process.returncode}"
            if process.returncode == -9:
                how += ", perhaps for want of memory"
        said = "\n".join(line for line in lines if line.strip())[-2000:]
        raise PartitioningError(
            f"{program.title} {how}. Choose --method fennel or --method metis, or give it more memory."
            + (f" It said:\n{said}" if said else "")
        )


def _resident(pid: int) -> int:
    """Bytes of memory of a process, files aside; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon:")), 0)
    except OSError:
        return 0
