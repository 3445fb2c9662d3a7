"""Memory and time of deep models against their depth: the models of whole_models.py, one worker, beside PyG alone.

A random graph of 40,000 nodes and 400,000 edges with 100 features; both sides have 2 threads and SAR's allocator. Time
is that of the faster of two epochs after the first. Growth is the peak of resident memory while training minus the size
before. Each side of each model is a process of its own.

    python bench/depth.py [--models gcnii4,gcnii64,gcnii64_again,...] [--name depth]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import common
from sar.cli.output import stage, table

MODELS = "gcnii4,gcnii64,gcnii64_again,deeper4,deeper28,deeper28_again,rev4,rev28"
NODES, EDGES, FEATURES, CLASSES = 40_000, 400_000, 100, 16


def run(library: str, name: str) -> dict[str, float]:
    """Trains in this process."""
    import torch
    import torch.nn.functional as F
    from sar.common_tuples import PartitionData, ShardEdgesAndFeatures

    import sar
    import whole_models
    from sar.cli.resident import reset_peak, resident

    torch.set_num_threads(2)
    sar.set_allocator("pool")
    sar.initialize_comms(0, 1, "127.0.0.1", "sar")

    def epoch(model, x, edges, y, optimizer) -> float:
        begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model.model(x, edges), y).backward()
        optimizer.step()
        return time.perf_counter() - begin

    def made(name: str, nodes: int, count: int):
        generator = torch.Generator().manual_seed(0)
        ends = torch.randint(0, nodes, (2, count), generator=generator)
        x, y = torch.randn(nodes, FEATURES, generator=generator), torch.arange(nodes) % CLASSES
        model = whole_models.make(name, FEATURES, CLASSES)
        if library == "sar":
            shards = [ShardEdgesAndFeatures((ends[0], ends[1]), {})]
            data = PartitionData(shards, [(0, nodes)], {}, ["_N"], [("_N", "_E", "_N")], None)
            ends = sar.pyg.edge_index(sar.construct_full_graph(data))
            sar.prepare(model, ends)
        return model, x, ends, y, torch.optim.Adam(model.parameters())

    for _ in range(2):
        epoch(*made(name.replace("64", "4").replace("28", "4"), 500, 2000))  # loads what torch loads late
    training = made(name, NODES, EDGES)
    sar.set_allocator("pool")
    reset_peak()
    before = resident()["now"]
    seconds = [epoch(*training) for _ in range(3)]
    return {"growth": resident()["peak"] - before, "seconds": min(seconds[1:])}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default=MODELS, help=f"(default: {MODELS})")
    p.add_argument("--name", default="depth", help="of the JSON file in bench/out (default: depth)")
    p.add_argument("--one", nargs=2, metavar=("LIBRARY", "MODEL"), help="one side of a model, in this process")
    a = p.parse_args()
    if a.one:
        print(json.dumps(run(*a.one)))
        return
    rows, lines = [], []
    for model in a.models.split(","):
        found = {}
        for library in ("pyg", "sar"):
            with stage(f"{model}, {library}") as step:
                words = [sys.executable, os.path.abspath(__file__), "--one", library, model]
                done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
                found[library] = json.loads(done.stdout.splitlines()[-1])
                step.note = f"{found[library]['seconds']:.2f} s, {found[library]['growth'] / common.MIB:.0f} MiB"
        rows.append({"model": model, **found})
        numbers = [f"{found[side]['growth'] / common.MIB:.0f}" for side in found]
        lines.append([model, *numbers, *(f"{found[side]['seconds']:.2f}" for side in found)])
    print(table(["", "PyG MiB", "SAR MiB", "PyG s", "SAR s"], lines))
    common.save(a.name, {"machine": common.machine(), "rows": rows})


if __name__ == "__main__":
    main()
