"""Cost of checksums when a partition is loaded and constructed, and the rate of `sar info --verify`.

One part of a random graph, from the page cache, so that nothing hides behind a disk. Both descriptions name the same
files; the one without checksums leaves the keys out. Each round runs both, in turns, and the ratio is the median of
the rounds' ratios.

    python bench/files.py [--nodes 500000] [--edges 10000000] [--features 128] [--rounds 15] [--scratch DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time

import numpy as np

import sar
from sar._engine import abi
from sar.cli.output import table
from sar.distributed.network import free_port
from sar.partitioning.dataset import Dataset
from sar.units import size


def make(folder: str, nodes: int, edges: int, features: int) -> tuple[str, str]:
    """Descriptions of one graph with and without checksums."""
    rng = np.random.default_rng(0)
    graph = os.path.join(folder, "g.npz")
    ends = rng.integers(0, nodes, (2, edges), dtype=np.int32)
    np.savez(graph, edge_index=ends, x=rng.standard_normal((nodes, features), dtype=np.float32))
    with Dataset(graph) as dataset:
        begin = time.perf_counter()
        dataset.write_parts(np.zeros(nodes, np.int32), 1, folder, {"name": "g", "method": "none"})
        print(f"sar partition wrote the part in {time.perf_counter() - begin:.1f} s", flush=True)
    os.remove(graph)
    with_sums, without = os.path.join(folder, "g.json"), os.path.join(folder, "plain.json")
    with open(with_sums, encoding="utf-8") as file:
        description = json.load(file)
    del description["checksum"], description["part-0"]["checksums"]
    with open(without, "w", encoding="utf-8") as file:
        json.dump(description, file)
    return with_sums, without


def once(path: str) -> np.ndarray:
    """Seconds of loading node features and of constructing the graph, and the processor's seconds of both."""

    def now() -> np.ndarray:
        return np.array([time.perf_counter(), time.process_time()])

    begin = now()
    data = sar.load_dgl_partition_data(path, 0)
    loaded = now()
    graph = sar.construct_full_graph(data)
    end = now()
    del graph, data
    return np.concatenate([loaded - begin, end - loaded])


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nodes", type=int, default=500_000)
    p.add_argument("--edges", type=int, default=10_000_000)
    p.add_argument("--features", type=int, default=128)
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--scratch", help="directory for the graph (default: the system's)")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(dir=a.scratch) as folder:
        paths = make(folder, a.nodes, a.edges, a.features)
        sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
        for path in paths:
            once(path)
        rounds: list[list[np.ndarray]] = []
        for n in range(a.rounds):
            order = paths if n % 2 == 0 else paths[::-1]
            found = {path: once(path) for path in order}
            rounds.append([found[path] for path in paths])
        rows = []
        for name, which in (
            ("load", [0]),
            ("construct", [2]),
            ("both", [0, 2]),
            ("processor, load", [1]),
            ("processor, both", [1, 3]),
        ):
            pairs = [(r[0][which].sum(), r[1][which].sum()) for r in rounds]
            ratios = sorted(x / y for x, y in pairs)
            medians = [statistics.median(side) for side in zip(*pairs)]
            middle = f"{ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
            rows.append([name, *(f"{m:.3f} s" for m in medians), f"{statistics.median(ratios):.3f}", middle])
        print(table(["", "checksums", "none", "ratio", "middle half of the ratios"], rows))
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            files = abi.partition_verify(paths[0], 0)
            times.append(time.perf_counter() - begin)
            assert not any(file["damage"] for file in files)
        total = sum(file["bytes"] for file in files)
        print(f"verify: {size(total)} in {min(times):.3f} s, {total / min(times) / 1e9:.1f} GB/s, structure included")
        sar.comm.shutdown()


if __name__ == "__main__":
    main()
