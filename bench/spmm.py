"""The sparse product y[i] = sum of x[j] over edges j -> i, against DGL's and torch's, in one run and one table.

Four peers take turns on the same graph and the same x, each allocating its result: the engine with a prepared matrix
(sar_matrix_spmm), the engine in one shot (sar_kernel_spmm, which checks the structure in every call and has no order
of rows), DGL (dgl.ops.copy_u_sum, int32 graph) and torch (CSR times dense, int32). All get the same matrix, nodes in
the same order, and all but the one-shot call have built their format before the clock starts. A time is the median
over turns, a ratio the median of the ratios within a turn. In cache: the bench graph (x at 256 columns is 61 MB).
Beyond cache: random edges between a million nodes (x is 1 GB); there results lie in memory that the process has
written before, for all peers alike, since a fresh gigabyte costs as much in page faults as in additions. Every result
is checked first.

    python bench/spmm.py [--turns 7] [--widths 256,100,47] [--threads 1,2] [--graphs cache,beyond]
"""

from __future__ import annotations

import argparse
import ctypes as ct
import gc
import statistics
import time
from typing import Callable

import dgl
import numpy as np
import torch

import common
from sar import _native
from sar.cli.output import table

BEYOND_NODES, BEYOND_EDGES = 1_000_000, 15_000_000
M_TRIM_THRESHOLD, M_MMAP_MAX, MOST = -1, -4, 2**31 - 1


def keep_freed_memory() -> None:
    """glibc gives nothing back from now on: every result after the first of its size lies in pages that are there."""
    libc = ct.CDLL(None)
    if not (libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, MOST)):
        raise RuntimeError("mallopt refuses: results would lie in fresh pages")


def edges(graph: str) -> tuple[np.ndarray, int]:
    """Source and destination of every edge [2, E], and the number of nodes."""
    if graph == "cache":
        with np.load(common.bench_graph()) as arrays:
            return arrays["edge_index"], len(arrays["y"])
    random = np.random.default_rng(1)
    return random.integers(0, BEYOND_NODES, (2, BEYOND_EDGES), dtype=np.int32), BEYOND_NODES


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
        self.matrix = ct.c_uint64()
        ptr, col = _native.tensor(self.ptr), _native.tensor(self.col)
        start = time.perf_counter()
        _native.call("sar_matrix_create", ptr, col, self.nodes, ct.byref(self.matrix))
        self.preparing = time.perf_counter() - start

    def close(self) -> None:
        _native.call("sar_matrix_free", self.matrix)

    def by_matrix(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        _native.call("sar_matrix_spmm", self.matrix, None, _native.tensor(x), _native.tensor(y))
        return y

    def by_sar(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        ptr, col, source, out = (_native.tensor(t) for t in (self.ptr, self.col, x, y))
        _native.call("sar_kernel_spmm", ptr, col, None, source, out)
        return y

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


def measure(peers: Peers, width: int, threads: int, turns: int) -> dict:
    torch.set_num_threads(threads)
    _native.call("sar_set_num_threads", threads)
    x = torch.randn(peers.nodes, width)
    want = peers.by_dgl(x)
    calls = {"dgl": peers.by_dgl, "prepared": peers.by_matrix, "one_shot": peers.by_sar, "torch": peers.by_torch}
    for call in calls.values():
        torch.testing.assert_close(call(x), want, rtol=1e-4, atol=1e-3)
    del want
    gc.collect()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            time.sleep(PAUSE)
            times[name].append(seconds(call, x))
    ratios = {
        f"to_{other}": statistics.median(a / b for a, b in zip(times["prepared"], times[other]))
        for other in ("one_shot", "dgl", "torch")
    }
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return {"width": width, "threads": threads, **medians, **ratios, "all": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--widths", default="256,100,47")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--graphs", default="cache,beyond")
    given = parser.parse_args()
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    results = []
    for graph in given.graphs.split(","):
        if graph == "beyond":
            keep_freed_memory()
        peers = Peers(graph)
        print(f"{graph}: {peers.edges} edges, prepared in {1e3 * peers.preparing:.0f} ms", flush=True)
        for threads in map(int, given.threads.split(",")):
            for width in map(int, given.widths.split(",")):
                row = {"graph": graph, "preparing": peers.preparing, **measure(peers, width, threads, given.turns)}
                results.append(row)
                print(
                    f"{graph} width {width} threads {threads}: prepared {1e3 * row['prepared']:.1f} ms, "
                    f"{row['to_one_shot']:.2f} x one shot, {row['to_dgl']:.2f} x DGL, {row['to_torch']:.2f} x torch",
                    flush=True,
                )
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
