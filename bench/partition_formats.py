"""SAR's partition format against DGL's: bytes an edge on disk, time and memory of loading and construction.

One part of a graph, from the page cache. Each round loads and constructs both in processes of their own, in turns, and
the ratio is the median of the rounds' ratios.

    python bench/partition_formats.py [GRAPH] [--parts 4] [--rounds 9] [--scratch DIR]

GRAPH is a graph directory, or an .npz file, the bench graph by default, which is made one first. Bytes are those of
`--parts` parts; time and memory are those of one part, which one worker can load.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from common import bench_graph
from sar.cli.output import table
from sar.units import size


def directory(npz: str, folder: str) -> str:
    """The graph directory of an ``.npz`` file of one type."""
    arrays = np.load(npz)
    src, dst = arrays["edge_index"]
    count, edges = len(arrays["x"]), len(src)
    order = np.lexsort((src, dst))
    os.makedirs(folder)
    np.save(f"{folder}/source.npy", src[order].astype(np.int32))
    ends = np.cumsum(np.bincount(dst, minlength=count))
    np.save(f"{folder}/indptr.npy", np.concatenate([[0], ends]).astype(np.int64))
    names = {"x": "features", "y": "labels"}
    features = {}
    for name in set(arrays.files) - {"edge_index"}:
        np.save(f"{folder}/{name}.npy", arrays[name])
        features[names.get(name, name)] = {"file": f"{name}.npy"}
    relation = {"indptr": {"file": "indptr.npy"}, "source": {"file": "source.npy"}}
    text = {
        "format": "SAR graph 1",
        "node_types": {"_N": {"count": count, "features": features}},
        "edge_types": [{"type": ["_N", "_E", "_N"], "count": edges, **relation}],
    }
    with open(f"{folder}/graph.json", "w", encoding="utf-8") as file:
        json.dump(text, file)
    return folder


def once(path: str) -> None:
    """Prints seconds of loading and construction, and resident bytes: before, at most meanwhile, and after."""
    import sar
    from sar.distributed.network import free_port

    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the largest resident size begins anew
    before = resident("VmRSS")
    begin = time.perf_counter()
    data = sar.load_dgl_partition_data(path, 0)
    loaded = time.perf_counter()
    graph = sar.construct_full_graph(data)
    end = time.perf_counter()
    figures = [loaded - begin, end - loaded, before, resident("VmHWM"), resident("VmRSS")]
    print(json.dumps(figures), flush=True)
    del graph, data
    sar.comm.shutdown()


def resident(key: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{key}:")) << 10


def bytes_of_edges(folder: str, parts: int) -> int:
    """Bytes on disk of all that is not a feature: edges, numbering, original ids, checksums."""
    total = 0
    for part in range(parts):
        for place, _, files in os.walk(os.path.join(folder, f"part{part}")):
            for file in files:
                own = file == "orig_id.npy" or "/nodes/" not in f"{place}/" and "/edges/" not in f"{place}/"
                if own and file not in ("node_feat.dgl",):
                    total += os.path.getsize(os.path.join(place, file))
    return total


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("graph", nargs="?", default="")
    p.add_argument("--parts", type=int, default=4)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--scratch", help="directory for the parts (default: the system's)")
    p.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.once:
        once(a.graph)
        return
    formats = ("dgl", "sar")
    with tempfile.TemporaryDirectory(dir=a.scratch) as folder:
        graph = a.graph or bench_graph()
        if graph.endswith(".npz"):
            graph = directory(graph, f"{folder}/graph")
        on_disk, written = [], []
        for parts in sorted({a.parts, 1}):
            for form in formats:
                out = f"{folder}/{form}{parts}"
                words = ["--parts", str(parts), "--method", "metis" if parts > 1 else "contiguous", "--name", "g"]
                words = [sys.executable, "-m", "sar", "partition", graph, *words, "--format", form, "--out", out]
                begin = time.perf_counter()
                subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
                written.append(time.perf_counter() - begin)
                if parts == a.parts:
                    with open(f"{out}/g.json", encoding="utf-8") as file:
                        counts = json.load(file)
                    nodes, edges = counts["num_nodes"], counts["num_edges"]
                    on_disk.append(bytes_of_edges(out, parts) / edges)
        rounds = []
        for n in range(a.rounds + 1):
            found = {}
            for form in formats if n % 2 == 0 else formats[::-1]:
                words = [sys.executable, __file__, f"{folder}/{form}1/g.json", "--once"]
                output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
                found[form] = json.loads(output.strip().splitlines()[-1])
            if n:  # the first one fills the page cache
                rounds.append([found[form] for form in formats])
    print(f"{nodes:,} nodes, {edges:,} edges; bytes with {a.parts} parts, time and memory of one")
    rows = [["bytes an edge, features aside", *(f"{b:.1f}" for b in on_disk), f"{on_disk[1] / on_disk[0]:.2f}"]]
    rows.append(["sar partition, 1 part", *(f"{s:.2f} s" for s in written[-2:]), f"{written[-1] / written[-2]:.2f}"])
    for name, pick in (
        ("load", lambda r: r[0]),
        ("construct", lambda r: r[1]),
        ("load and construct", lambda r: r[0] + r[1]),
    ):
        pairs = [(pick(x), pick(y)) for x, y in rounds]
        medians = [statistics.median(side) for side in zip(*pairs)]
        rows.append(
            [name, *(f"{m * 1000:.1f} ms" for m in medians), f"{statistics.median(y / x for x, y in pairs):.2f}"]
        )
    for name, pick in (("grown to at most", lambda r: r[3] - r[2]), ("grown to in the end", lambda r: r[4] - r[2])):
        both = [statistics.median(pick(r[k]) for r in rounds) for k in (0, 1)]
        rows.append([name, *(size(b) for b in both), f"{both[1] / both[0]:.2f}"])
    print(table(["", *formats, "ratio"], rows))


if __name__ == "__main__":
    main()
