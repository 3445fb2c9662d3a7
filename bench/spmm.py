"""Sparse-dense product (SpMM), y[i] = sum of x[j] over edges j -> i, against DGL and torch, in one run and one table.

Four peers take turns on the same graph and the same x, each allocating its result: the engine with a prepared matrix
(sar_matrix_spmm; its rows are computed in an order that keeps their sources in the cache, as those of a graph's
relations are, and stored in it, as those of relations are not), the engine in one shot (sar_kernel_spmm, which checks
the structure in every call and has no order of rows), DGL (dgl.ops.copy_u_sum, int32 graph) and torch (CSR times dense,
int32). All get the same matrix, nodes in the same order, and all but the one-shot call have built their format before
the clock starts. A time is the median over turns, a ratio the median of the ratios within a turn. Three graphs:

    cache        the bench graph: x at 256 columns is 61 MB
    random       beyond the cache: a million nodes, x is 1 GB, 15 M edges at random, so that no order of rows helps
    communities  beyond the cache: the generator of the bench graph with a million nodes and an average degree of 15
                 (16 M edges with self loops), whose 64 communities lie under shuffled numbers, as in the bench graph

Beyond the cache results lie in memory that the process has written before, for all peers alike, since a fresh gigabyte
costs as much in page faults as in additions. Every result is checked first.

There the engine puts source rows that it reads over and over into huge pages. So it has an x of its
own, and DGL and torch take turns on both: on one that nobody touched, and on the engine's. How fast this machine reads
rows of that width at random is measured beside it: the sums of 512 random rows each, so that next to nothing is
written, by the engine and by torch's embedding_bag, whichever is faster. The share of that rate that the product
reaches counts its reads of source rows alone.

    python bench/spmm.py [--turns 7] [--widths 256,100,47] [--threads 1,2] [--graphs cache,random,communities]
"""

from __future__ import annotations

import argparse
import ctypes as ct
import gc
import os
import statistics
import subprocess
import sys
import time
from typing import Callable

import dgl
import numpy as np
import torch

import common
from sar._engine import library
from sar.cli.output import table

BEYOND_NODES, BEYOND_DEGREE = 1_000_000, 15
M_TRIM_THRESHOLD, M_MMAP_MAX, MOST = -1, -4, 2**31 - 1


def keep_freed_memory() -> None:
    """glibc gives nothing back from now on: every result after the first of its size lies in pages that are there."""
    libc = ct.CDLL(None)
    if not (libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, MOST)):
        raise RuntimeError("mallopt refuses: results would lie in fresh pages")


def edges(graph: str) -> tuple[np.ndarray, int]:
    """Source and destination of every edge [2, E], and the number of nodes."""
    if graph == "random":
        random = np.random.default_rng(1)
        return random.integers(0, BEYOND_NODES, (2, BEYOND_NODES * BEYOND_DEGREE), dtype=np.int32), BEYOND_NODES
    path = common.bench_graph()
    if graph == "communities":
        script, path = os.path.join(common.HERE, "make_graph.py"), os.path.join(common.WORK, "communities.npz")
        if not os.path.exists(path):
            # One feature a node: x is made here.
            words = [path, str(BEYOND_NODES), str(BEYOND_DEGREE), "1"]
            subprocess.run([sys.executable, script, *words], check=True)
    with np.load(path) as arrays:
        return arrays["edge_index"], len(arrays["y"])


class Peers:
    """One graph in the form that each peer likes best."""

    def __init__(self, graph: str) -> None:
        (src, dst), self.nodes = edges(graph)
        self.edges = len(src)
        order = np.lexsort((src, dst))
        self.col = torch.from_numpy(src[order])
        ptr = np.zeros(self.nodes + 1, np.int64)
        np.cumsum(np.bincount(dst, minlength=self.nodes), out=ptr[1:])
        self.ptr = torch.from_numpy(ptr)
        self.dgl = dgl.graph((torch.from_numpy(src), torch.from_numpy(dst)), num_nodes=self.nodes, idtype=torch.int32)
        self.dgl = self.dgl.formats(["csc"])
        self.dgl.create_formats_()
        shape = (self.nodes, self.nodes)
        self.csr = torch.sparse_csr_tensor(self.ptr.int(), self.col, torch.ones(self.edges), shape)
        ptr, col = library.tensor(self.ptr), library.tensor(self.col)
        start = time.perf_counter()
        self.matrix = library.call("sar_matrix_create", ptr, col, self.nodes)
        self.preparing = time.perf_counter() - start

    def close(self) -> None:
        library.call("sar_matrix_free", self.matrix)

    def by_matrix(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        library.call("sar_matrix_spmm", self.matrix, None, library.tensor(x), library.tensor(y))
        return y

    def by_sar(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        ptr, col, source, out = (library.tensor(t) for t in (self.ptr, self.col, x, y))
        library.call("sar_kernel_spmm", ptr, col, None, source, out)
        return y

    def prepare_gather(self) -> None:
        """A matrix whose rows are the sums of 512 random rows."""
        random = np.random.default_rng(2)
        ids = np.sort(random.integers(0, self.nodes, (self.edges // 512, 512), dtype=np.int32), axis=1)
        self.bags = torch.from_numpy(ids)
        self.bag_ptr = torch.arange(0, ids.size + 1, 512)

    def gather_by_sar(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(len(self.bags), x.shape[1])
        ptr, col, source, out = (library.tensor(t) for t in (self.bag_ptr, self.bags.reshape(-1), x, y))
        library.call("sar_kernel_spmm", ptr, col, None, source, out)
        return y

    def gather_by_torch(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(self.bags, x, mode="sum")

    def by_dgl(self, x: torch.Tensor) -> torch.Tensor:
        return dgl.ops.copy_u_sum(self.dgl, x)

    def by_torch(self, x: torch.Tensor) -> torch.Tensor:
        return self.csr @ x


PAUSE = 0.02
"""Seconds before each call: for some milliseconds after a parallel region, OpenMP's threads wait for the next one by
spinning, and whoever comes then gets one core less."""


def seconds(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> float:
    start = time.perf_counter()
    y = f(x)
    end = time.perf_counter()
    del y
    return end - start


SETTLE = 8
"""Products before the clock starts, beyond the cache: then the engine has done what it does for memory read often."""


def measure(peers: Peers, width: int, threads: int, turns: int, beyond: bool) -> dict:
    torch.set_num_threads(threads)
    library.call("sar_set_num_threads", threads)
    x = torch.randn(peers.nodes, width)
    own = x.clone() if beyond else x
    want = peers.by_dgl(x)
    calls = {
        "dgl": (peers.by_dgl, x),
        "prepared": (peers.by_matrix, own),
        "one_shot": (peers.by_sar, own),
        "torch": (peers.by_torch, x),
    }
    if beyond:
        peers.prepare_gather()
        calls.update(
            first=(peers.by_matrix, x),
            dgl_own=(peers.by_dgl, own),
            torch_own=(peers.by_torch, own),
            gather_sar=(peers.gather_by_sar, own),
            gather_torch=(peers.gather_by_torch, own),
        )
    for name, (call, source) in calls.items():
        if not name.startswith("gather"):
            torch.testing.assert_close(call(source), want, rtol=1e-4, atol=1e-3)
    if beyond:
        torch.testing.assert_close(peers.gather_by_sar(own), peers.gather_by_torch(own), rtol=1e-4, atol=1e-3)
        for _ in range(SETTLE):
            peers.by_matrix(own)
    del want
    gc.collect()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns):
        for name, (call, source) in calls.items():
            if name == "first" and turn > 1:
                continue  # a few more, and the engine would put this x into huge pages too
            time.sleep(PAUSE)
            times[name].append(seconds(call, source))
    others = [name for name in times if name not in ("prepared", "first")]
    ratios = {
        f"to_{other}": statistics.median(a / b for a, b in zip(times["prepared"], times[other])) for other in others
    }
    if beyond:
        ratios["share"] = min(
            statistics.median(
                (peers.edges / a) / (peers.bags.numel() / b) for a, b in zip(times["prepared"], times[f"gather_{by}"])
            )
            for by in ("sar", "torch")
        )
        fastest = min(statistics.median(times[f"gather_{by}"]) for by in ("sar", "torch"))
        ratios["gather_gb"] = 4e-9 * width * peers.bags.numel() / fastest
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return {"width": width, "threads": threads, **medians, **ratios, "all": times}


def say(graph: str, row: dict) -> None:
    print(
        f"{graph} width {row['width']} threads {row['threads']}: prepared {1e3 * row['prepared']:.1f} ms, "
        f"{row['to_one_shot']:.2f} x one shot, {row['to_dgl']:.2f} x DGL, {row['to_torch']:.2f} x torch",
        flush=True,
    )
    if "share" in row:
        print(
            f"    {1e3 * row['first']:.1f} ms before huge pages; on the same pages {row['to_dgl_own']:.2f} x DGL, "
            f"{row['to_torch_own']:.2f} x torch; random rows at {row['gather_gb']:.1f} GB/s, "
            f"of which the product reaches {100 * row['share']:.0f} %",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--widths", default="256,100,47")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--graphs", default="cache,random,communities")
    given = parser.parse_args()
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    results = []
    graphs = given.graphs.split(",")
    if not set(graphs) <= {"cache", "random", "communities"}:
        parser.error("--graphs: cache, random, communities, or several of them with commas")
    for graph in graphs:
        if graph != "cache":
            keep_freed_memory()
        peers = Peers(graph)
        print(f"{graph}: {peers.edges} edges, prepared in {1e3 * peers.preparing:.0f} ms", flush=True)
        for threads in map(int, given.threads.split(",")):
            for width in map(int, given.widths.split(",")):
                taken = measure(peers, width, threads, given.turns, graph != "cache")
                results.append({"graph": graph, "preparing": peers.preparing, **taken})
                say(graph, results[-1])
        peers.close()
        del peers
        gc.collect()
    head = ["graph", "width", "threads", "prepared ms", "one shot ms", "DGL ms", "torch ms"]
    head += ["prepared / one shot", "prepared / DGL", "prepared / torch"]
    rows = [
        [r["graph"], str(r["width"]), str(r["threads"])]
        + [f"{1e3 * r[k]:.1f}" for k in ("prepared", "one_shot", "dgl", "torch")]
        + [f"{r[k]:.2f}" for k in ("to_one_shot", "to_dgl", "to_torch")]
        for r in results
    ]
    print("The same matrix in the same order for all; formats built beforehand for all but the one-shot call.")
    print(table(head, rows))
    common.save("spmm", {"machine": machine, "rows": results})


if __name__ == "__main__":
    main()
