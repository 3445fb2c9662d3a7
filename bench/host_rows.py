"""Rows that would cross the network once in place of several times, if the workers of one host read each other's halo.

make bench-hosts HOSTS="--graph GRAPH --parts 16,64 --methods metis,kaminpar"

A host reads a remote row once for each of its workers that has an edge from it. Counted are the rows that workers read
from other hosts, and how many of them are different for each host; the rest is what sharing would save. The count is
exact and needs no workers.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from common import bench_graph
from sar.cli.output import stage, table
from sar.partitioning.dataset import Dataset
from sar.partitioning.methods import METHODS, assign
from sar.partitioning.options import Options


def crossing(boundary: np.ndarray, workers: int) -> int:
    """Rows that travel between hosts of so many workers, for ``boundary[p][q]`` rows of part q that part p reads."""
    host = np.arange(len(boundary)) // workers
    return int(boundary[host[:, None] != host[None, :]].sum())


def count(dataset: Dataset, assignment: np.ndarray, parts: int, workers: int) -> tuple[int, int]:
    """Rows that cross between hosts today, and with each once for a host."""
    today = crossing(np.array(dataset.quality(assignment, parts)["boundary"]), workers)
    hosts = (assignment // workers).astype(np.int32)
    once = crossing(np.array(dataset.quality(hosts, parts // workers)["boundary"]), 1)
    return today, once


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--graph", help="graph directory or .npz file (the bench graph)")
    p.add_argument("--parts", default="16,64", help="numbers of parts (16,64)")
    p.add_argument("--workers", default="2,4,8", help="workers of a host (2,4,8)")
    p.add_argument("--methods", default="metis,kaminpar", help=f"of {', '.join(METHODS)} (metis,kaminpar)")
    arguments = p.parse_args()
    graph = arguments.graph or bench_graph()
    with Dataset(graph) as dataset:
        print(f"{dataset.num_nodes:,} nodes, {dataset.num_edges:,} edges")
        rows = []
        for parts in (int(n) for n in arguments.parts.split(",")):
            for method in arguments.methods.split(","):
                plain = assign(dataset, method, Options(parts, memory=4 << 30), stage)
                for workers in (int(n) for n in arguments.workers.split(",")):
                    if workers >= parts:
                        continue
                    by_host = assign(dataset, method, Options(parts, hosts=parts // workers, memory=4 << 30), stage)
                    for first, assignment in (("no", plain), ("yes", by_host)):
                        today, once = count(dataset, assignment, parts, workers)
                        saved = 1 - once / max(1, today)
                        rows.append([parts, method, first, workers, f"{today:,}", f"{once:,}", f"{saved:.1%}"])
    heads = ["parts", "method", "hosts cut first", "workers of a host", "rows between hosts", "once for each host"]
    print(table([*heads, "saved"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
