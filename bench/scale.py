"""Shared by the large-graph benchmarks: a graph in a scratch directory, its partitions, training on them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import common
import sar
import scale_graph
from sar.cli.output import Failure, stage
from sar.units import size

FEATURES = 128
# The models of scale_worker.py, as sar plan has them.
LAYERS = {"sage": ["sage:64", "relu", "sage:40"], "gat": ["gat:4x16", "elu", "gat:1x40"]}
GIB = float(1 << 30)
IDLE = 500 << 20  # of its own that a worker with torch takes before it has anything


def available() -> int:
    """Bytes of memory that processes may still take."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


@contextlib.contextmanager
def scratch(parent: str | None, needed: int) -> Iterator[str]:
    """A directory that is gone afterwards, on a disk with room for ``needed`` bytes."""
    parent = parent or tempfile.gettempdir()
    os.makedirs(parent, exist_ok=True)
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise Failure(f"{parent} has {size(free)} free, and this needs about {size(needed)}: name another --scratch")
    with tempfile.TemporaryDirectory(prefix="sar-scale-", dir=parent) as folder:
        yield folder


def graph_bytes(nodes: int, edges: int) -> int:
    """Of the ``.npz`` file, and of what writing it takes beside that."""
    return 8 * edges + 4 * edges + nodes * (4 * FEATURES + 8 + 2)


def parts_bytes(nodes: int, edges: int) -> int:
    """Of the files of all parts where every edge is cut, while they are written: 33 bytes for an inner edge, 33 for the
    same edge where it leaves."""
    return 66 * edges + nodes * (4 * FEATURES + 18 + 17 * 4)


def make_graph(folder: str, nodes: int, edges: int, skew: float, hub: int) -> tuple[str, dict]:
    """Writes a graph; what it took."""
    path = os.path.join(folder, f"{edges}-{skew:g}-{hub}.npz")
    begin = time.perf_counter()
    with stage(f"generating {nodes:,} nodes and {edges:,} edges") as step:
        scale_graph.write(path, nodes, edges, features=FEATURES, skew=skew, hub=hub, progress=step.progress)
        step.note = size(os.path.getsize(path))
    return path, {"seconds": time.perf_counter() - begin, "bytes": os.path.getsize(path)}


def make_parts(graph: str, folder: str, parts: int, method: str) -> tuple[str, dict]:
    """``sar partition`` in a process of its own: path of the description, seconds in all and by stage, peak memory."""
    words = ["--parts", str(parts), "--method", method, "--name", "g", "--out", folder]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "sar", "partition", graph, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stages = {}
    for line in process.stderr:
        print(f"  {line.rstrip()}", file=sys.stderr, flush=True)
        if found := re.match(r"(.*): ([0-9.]+) s(, .*)?$", line):
            stages[found[1]] = float(found[2])
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Failure(f"sar partition --method {method} ended with {process.returncode}")
    cut = float(re.search(r"\(([0-9.]+) %\)", text)[1])
    return os.path.join(folder, "g.json"), {
        "method": method,
        "seconds": time.perf_counter() - begin,
        "stages": stages,
        "peak": usage.ru_maxrss << 10,
        "cut_percent": cut,
        "bytes": sum(os.path.getsize(os.path.join(at, f)) for at, _, files in os.walk(folder) for f in files),
    }


def train(path: str, workers: int, model: str, epochs: int, allocator: str = "pool", transport: str = "") -> dict:
    """Workers that load, construct and train: seconds and bytes, of the slowest and the heaviest worker."""
    threads = max(1, len(os.sched_getaffinity(0)) // workers)
    extra = {"SAR_TRANSPORT": transport} if transport else {}
    out = {"model": model, "workers": workers, "threads": threads, "allocator": allocator}
    plan = sar.estimate_memory(path, LAYERS[model], in_features=FEATURES)
    out["planned"], out["sent"] = max(e.peak for e in plan), sum(e.sent_per_epoch for e in plan)
    needed = sum(e.peak for e in plan) + workers * IDLE
    if needed > available():
        raise Failure(f"{model} takes about {size(needed)} in all, and {size(available())} are available")
    with common.Group("scale_worker.py", [path, model, allocator], workers, threads, extra) as group:
        group.answers()
        for word in ("load", "construct"):
            with stage(f"{model}, {workers} workers: {word}"):
                answers = group.ask(word)
            out[word] = _summary(answers)
        out["nodes_own"] = [a["nodes"] for a in answers]
        out["edges_own"] = [a["edges"] for a in answers]
        group.ask("prepare")
        with stage(f"{model}, {workers} workers: first epoch"):
            first = group.ask("epochs 1")
        out["first"] = {**_summary(first), "loss": sum(a["losses"][0] for a in first)}
        with stage(f"{model}, {workers} workers: {epochs} epochs") as step:
            answers = group.ask(f"epochs {epochs}")
            seconds = [max(times) for times in zip(*(a["seconds"] for a in answers))]
            step.note = f"{statistics.median(seconds):.2f} s an epoch"
        out["train"] = {
            **_summary(answers),
            "seconds": seconds,
            "cpu": sum(a["cpu"] for a in answers),
            "loss": sum(a["losses"][-1] for a in answers),
        }
        memory = group.ask("memory")
        turns = zip(*(a["seconds"] for a in group.ask("aggregate 4")))
        out["aggregate"] = min(max(times) for times in turns)
        heaviest = max(memory, key=lambda m: m["engine_peak"]["total"])
        out["engine_live"], out["engine_peak"] = heaviest["engine_live"], heaviest["engine_peak"]
        out["base"] = memory[0]["base"]
    return out


def _summary(answers: list[dict]) -> dict:
    keys = [k for k in ("took", "resident", "resident_peak", "feature_bytes") if k in answers[0]]
    return {k: max(a[k] for a in answers) for k in keys} | {"resident_all": sum(a["resident_peak"] for a in answers)}
