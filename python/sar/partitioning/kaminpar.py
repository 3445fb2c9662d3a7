"""KaMinPar, in a process of its own: its binding reads a file and returns a list, and may end the process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

import numpy as np

from sar.data.ingest.progress import Stages
from sar.extras import need

from . import weights
from .dataset import Dataset
from .hosts import by_hosts, without_empty_parts
from .options import Options, PartitioningError

_POLL_SECONDS = 0.05
_SMALL = 2_000_000  # neighbours
# Bytes a node and a neighbour of what the process takes. A line through two graphs, rounded up: 1 M nodes and 16 M
# neighbours took 655 MiB, 4 M and 100 M took 3347 MiB, with terapart 2875 MiB.
_NEEDS = {"default": (360, 22), "terapart": (360, 17)}


def library() -> Any:
    """:raises sar.extras.MissingLibraryError: KaMinPar is not installed"""
    return need("kaminpar", "partition", "--method kaminpar", "choose --method fennel, which comes with SAR")


def needed(nodes: int, edges: int, context: str) -> int:
    """Bytes that cutting takes, for so many undirected edges."""
    of_node, of_neighbour = _NEEDS[context]
    return nodes * of_node + 2 * edges * of_neighbour + (64 << 20)


def choose_context(nodes: int, edges: int, memory: int) -> Optional[str]:
    """The first context that fits the memory; None where none does."""
    return next((c for c in _NEEDS if needed(nodes, edges, c) <= memory), None)


def kaminpar(dataset: Dataset, options: Options, stage: Stages) -> np.ndarray:
    """KaMinPar's assignment int32 ``[num_nodes]``. Several kinds of balance are weighed together. Small
    graphs are cut by one thread, and the same seed gives the same parts; larger ones by all, and it does not.

    :raises PartitioningError: the memory does not do, or KaMinPar failed
    """
    library()
    with stage("reading edges in both directions") as step:
        dataset.undirect(options.scratch, options.memory_to_sort(dataset.num_nodes), step.progress)
    weight = weights.combined(dataset, options.balance)

    def cut(parts: int, imbalance: float, hosts: Optional[np.ndarray], host: int) -> np.ndarray:
        with tempfile.TemporaryFile(dir=options.scratch) as graph, tempfile.TemporaryFile(dir=options.scratch) as out:
            what = "the graph" if hosts is None else f"host {host}"
            with stage(f"writing {what} for KaMinPar"):
                path = f"/proc/self/fd/{graph.fileno()}"
                nodes, neighbours = dataset.write_parhip(path, weight, hosts, host)
            if parts == 1 or nodes <= parts or neighbours == 0:
                return (np.arange(nodes) % parts).astype(np.int32)
            context = choose_context(nodes, neighbours // 2, options.memory)
            if context is None:
                raise PartitioningError(
                    f"KaMinPar needs about {needed(nodes, neighbours // 2, 'terapart') >> 20} MiB for {nodes:,} nodes "
                    f"and {neighbours // 2:,} undirected edges, and may take {options.memory >> 20} MiB: "
                    "give more with --memory, or choose --method fennel"
                )
            with stage(f"cutting {nodes:,} nodes and {neighbours // 2:,} undirected edges into {parts} with KaMinPar"):
                # one thread repeats itself, and is fast enough for small graphs
                threads = 1 if neighbours < _SMALL else len(os.sched_getaffinity(0))
                words = [graph.fileno(), out.fileno(), parts, options.seed, threads, nodes, neighbours]
                _run([*words, imbalance, context], (graph.fileno(), out.fileno()), options.memory)
            out.seek(0)
            found = np.fromfile(out, np.int32)
        if len(found) != nodes or found.min() < 0 or found.max() >= parts:
            raise PartitioningError(f"KaMinPar gave {len(found)} parts for {nodes} nodes, or parts out of range")
        return without_empty_parts(found, parts)

    return by_hosts(cut, options)


def _run(words: list[object], files: tuple[int, ...], memory: int) -> None:
    """Runs the process to its end. It does not outlive this one, nor a failure here, nor its memory."""
    source = Path(__file__).with_name("kaminpar_process.py").read_text(encoding="utf-8")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-c", source, *map(str, [os.getpid(), *words])],
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
                        f"KaMinPar took {most >> 20} MiB, and may take {memory >> 20} MiB: give more with --memory, "
                        "or choose --method fennel"
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
            f"KaMinPar {how}. Choose --method fennel or --method metis, or give it more memory."
            + (f" It said:\n{said}" if said else "")
        )


def _resident(pid: int) -> int:
    """Bytes of memory of a process, files aside; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon:")), 0)
    except OSError:
        return 0
