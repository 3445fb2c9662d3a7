"""Shared by the benchmarks: paths, the benchmark graph and its partitions, facts about the machine, worker groups."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from datetime import datetime, timezone

import numpy as np

from sar.cli.job import environment
from sar.cli.output import stage
from sar.distributed import tokens
from sar.distributed.network import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
OUT = os.path.join(HERE, "out")
WORK = os.path.join(ROOT, "build", "bench")
MIB = float(1 << 20)


def bench_graph() -> str:
    """The path of the bench graph, which is made where it is missing."""
    path = os.path.join(WORK, "graph.npz")
    if not os.path.exists(path):
        os.makedirs(WORK, exist_ok=True)
        subprocess.run([sys.executable, os.path.join(HERE, "make_graph.py"), path], check=True)
    return path


def parts(count: int, method: str, graph: str = "bench") -> str:
    """A graph in parts: the path of the description, made where it is missing."""
    folder = os.path.join(WORK, f"{method}-{count}" if graph == "bench" else f"{graph}-{method}-{count}")
    path = os.path.join(folder, f"{graph}.json")
    if not os.path.exists(path):
        source = bench_graph() if graph == "bench" else hubs(graph)
        words = ["--parts", str(count), "--method", method, "--name", graph, "--out", folder]
        cut = [sys.executable, "-m", "sar", "partition", source, *words]
        subprocess.run(cut, check=True, stdout=subprocess.DEVNULL)
    return path


def hubs(graph: str, features: int = 256) -> str:
    """A graph with hubs, with random features: cornell5, or rmat, which has 262,144 nodes and 2 M draws of an edge."""
    path = os.path.join(WORK, f"{graph}-{features}.npz")
    if os.path.exists(path):
        return path
    rng = np.random.default_rng(0)
    os.makedirs(WORK, exist_ok=True)
    if graph == "cornell5":
        with np.load(os.path.join(os.path.dirname(__file__), "..", "examples", "data", "cornell5.npz")) as arrays:
            edges, nodes = arrays["edge_index"], len(arrays["x"])
    else:
        scale, draws = 18, 2_000_000
        nodes, edges = 1 << scale, np.zeros((2, draws), np.int64)
        for _ in range(scale):  # the quarter of the matrix, bit by bit: 0.57, 0.19, 0.19, 0.05
            quarter = np.searchsorted([0.57, 0.76, 0.95], rng.random(draws))
            edges = 2 * edges + np.stack([quarter // 2, quarter % 2])
        edges = np.unique(edges[:, edges[0] != edges[1]], axis=1).astype(np.int32)
    content = {"edge_index": edges, "features": rng.random((nodes, features), np.float32)}
    content["labels"] = rng.integers(0, 8, nodes)
    content["train_mask"] = rng.random(nodes) < 0.5
    np.savez(path, **content)
    return path


def reordered_graph(clusters: int = 8) -> str:
    """The bench graph with nodes renumbered so that METIS's clusters are runs of numbers: what DGL likes best."""
    path = os.path.join(WORK, f"reordered-{clusters}.npz")
    if os.path.exists(path):
        return path
    from sar.partitioning.dataset import Dataset
    from sar.partitioning.metis import metis
    from sar.partitioning.options import Options

    with Dataset(bench_graph()) as dataset:
        order = np.argsort(metis(dataset, Options(clusters), stage), kind="stable")
    new = np.empty(len(order), np.int32)
    new[order] = np.arange(len(order), dtype=np.int32)
    with np.load(bench_graph()) as arrays:
        content = {name: new[a] if name == "edge_index" else a[order] for name, a in arrays.items()}
    np.savez(path, **content)
    return path


def machine() -> dict:
    """What the figures were taken on."""
    import dgl
    import torch

    from sar._engine import library

    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dgl": dgl.__version__,
        "sar": library.call("sar_version"),
        "simd": library.call("sar_simd"),
        "commit": commit,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def machine_line(m: dict) -> str:
    return (
        f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']:.0f} GiB, Linux {m['kernel']}, {m['libc']}; "
        f"Python {m['python']}, torch {m['torch']}, DGL {m['dgl']}; "
        f"sar {m['sar']} ({m['simd']}), commit {m['commit']}, {m['date']}"
    )


def save(name: str, content: dict) -> None:
    """Writes ``bench/out/name.json``."""
    os.makedirs(OUT, exist_ok=True)
    path = os.path.join(OUT, f"{name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    print(f"wrote {os.path.relpath(path)}", flush=True)


class Group:
    """Processes that answer commands, all at a time. Use it in a ``with`` statement: it ends them."""

    def __init__(
        self,
        script: str,
        words: list[str],
        workers: int,
        threads: int,
        extra: dict[str, str],
        master: str = "127.0.0.1",
        inside: list[list[str]] | None = None,
        ranks: range | None = None,
    ) -> None:
        """``inside`` gives the words that run each worker's command elsewhere, as in a network namespace; ``ranks``
        those to start, where somebody else starts the others."""
        port, token = free_port(), tokens.fresh()
        self.job = {**environment(0, workers, threads, master, port), tokens.VARIABLE: token, **extra}
        self.processes = [
            subprocess.Popen(
                [*(inside[rank] if inside else []), sys.executable, os.path.join(HERE, script), *words],
                env={**environment(rank, workers, threads, master, port), tokens.VARIABLE: token, **extra},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in ranks or range(workers)
        ]

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *unused: object) -> None:
        self.send("end", ended_is_fine=True)
        end = time.monotonic() + 20
        for process in self.processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def send(self, command: str, ended_is_fine: bool = False) -> None:
        for process in self.processes:
            try:
                process.stdin.write(command + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                if not ended_is_fine:
                    raise

    def answers(self) -> list[dict]:
        """One answer of each process."""
        lines = [process.stdout.readline() for process in self.processes]
        for rank, line in enumerate(lines):
            if not line:
                raise RuntimeError(f"worker {rank} ended without an answer; its error is above")
        return [json.loads(line) for line in lines]

    def ask(self, command: str) -> list[dict]:
        self.send(command)
        return self.answers()
