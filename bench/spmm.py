"""The sparse product y[i] = sum of x[j] over edges j -> i, against DGL's and torch's, in one run and one table.

Three peers take turns on the same graph and the same x, each allocating its result: the engine (sar_kernel_spmm), DGL
(dgl.ops.copy_u_sum, int32 graph, sparse format built before the clock starts) and torch (CSR times dense, int32). A
time is the median over turns, a ratio the median of the ratios within a turn. In cache: the bench graph (x at 256
columns is 61 MB). Beyond cache: random edges between a million nodes (x is 1 GB). Every result is checked first.

    python bench/spmm.py [--turns 7] [--widths 256,100,47] [--threads 1,2] [--graphs cache,beyond]
"""

from __future__ import annotations

import argparse
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

    def by_sar(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        ptr, col, source, out = (_native.tensor(t) for t in (self.ptr, self.col, x, y))
        _native.call("sar_kernel_spmm", ptr, col, None, source, out)
        return y

    def by_dgl(self, x: torch.Tensor) -> torch.Tensor:
        return dgl.ops.copy_u_sum(self.dgl, x)

    def by_torch(self, x: torch.Tensor) -> torch.Tensor:
        return self.csr @ x


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
    for other in (peers.by_sar, peers.by_torch):
        torch.testing.assert_close(other(x), want, rtol=1e-4, atol=1e-3)
    del want
    gc.collect()
    ours, by_dgl, by_torch = [], [], []
    for _ in range(turns):
        by_dgl.append(seconds(peers.by_dgl, x))
        ours.append(seconds(peers.by_sar, x))
        by_torch.append(seconds(peers.by_torch, x))
    return {
        "width": width,
        "threads": threads,
        "sar": statistics.median(ours),
        "dgl": statistics.median(by_dgl),
        "torch": statistics.median(by_torch),
        "to_dgl": statistics.median(a / b for a, b in zip(ours, by_dgl)),
        "to_torch": statistics.median(a / b for a, b in zip(ours, by_torch)),
        "all": {"sar": ours, "dgl": by_dgl, "torch": by_torch},
    }


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
        peers = Peers(graph)
        for threads in map(int, given.threads.split(",")):
            for width in map(int, given.widths.split(",")):
                row = {"graph": graph, **measure(peers, width, threads, given.turns)}
                results.append(row)
                print(
                    f"{graph} width {width} threads {threads}: sar {1e3 * row['sar']:.1f} ms, "
                    f"{row['to_dgl']:.2f} x DGL, {row['to_torch']:.2f} x torch",
                    flush=True,
                )
        del peers
        gc.collect()
    head = ["graph", "width", "threads", "SAR ms", "DGL ms", "torch ms", "SAR / DGL", "SAR / torch"]
    rows = [
        [r["graph"], str(r["width"]), str(r["threads"])]
        + [f"{1e3 * r[k]:.1f}" for k in ("sar", "dgl", "torch")]
        + [f"{r[k]:.2f}" for k in ("to_dgl", "to_torch")]
        for r in results
    ]
    print(table(head, rows))
    common.save("spmm", {"machine": machine, "rows": results})


if __name__ == "__main__":
    main()
