"""From tables of a billion edges to predictions, on one machine: every step by the package's commands, with its time,
memory and what it leaves on disk.

Parquet files of pairs and of nodes are written first (ids that are no row numbers, features, labels, a split). Then
`sar ingest` makes edges of both directions, `sar partition` cuts them, 4 workers train 2 epochs of SAGE, `sar infer`
writes classes by id, `sar gather` joins them. A step that has run is not run again as long as --scratch is kept.

    python bench/billion.py --scratch DIR [--nodes 16000000] [--pairs 548000000] [--parts 4] [--memory 4GiB]
                            [--until STEP]

Memory is the resident memory of the processes of a step together, at its peak: what they share counts for each, and so
do pages of files that they map, which the kernel may take back.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import common
import scale_graph
from ingest import ids_of, write_pairs
from sar.cli.output import Failure, stage, table
from sar.units import size
from watched import watch

FEATURES, CLASSES = 32, 16


def generate(a: argparse.Namespace, folder: str) -> None:
    """``edges/*.parquet`` (src, dst) and ``nodes/*.parquet`` (id, x, y, split)."""
    for name in ("edges", "nodes"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    write_pairs(os.path.join(folder, "edges"), a.nodes, a.pairs, "sparse", 32)
    os.makedirs(os.path.join(folder, "nodes"))
    at = 0
    for run in scale_graph.rows(a.nodes, FEATURES, CLASSES, 0):
        count = len(run["y"])
        split = np.where(run["train_mask"], "train", np.where(run["test_mask"], "test", "val"))
        x = pa.FixedSizeListArray.from_arrays(pa.array(run["x"].reshape(-1)), FEATURES)
        columns = {"id": ids_of(np.arange(at, at + count), "sparse"), "x": x, "y": run["y"], "split": split}
        pq.write_table(pa.table(columns), os.path.join(folder, "nodes", f"{at:010d}.parquet"))
        at += count


def steps(a: argparse.Namespace, folder: str) -> dict[str, tuple[str, list[str]]]:
    """By name: what a step makes, and the step."""

    def at(*names: str) -> str:
        return os.path.join(folder, *names)

    code = "import argparse, sys; sys.path.insert(0, {!r}); import billion; "
    code += "billion.generate(argparse.Namespace(nodes={}, pairs={}), {!r})"
    sar, model = ["-m", "sar"], f"{os.path.join(common.HERE, 'billion_train.py')}"
    threads = ["--threads", str(max(1, (os.cpu_count() or 1) // a.parts))]
    tables = ["--edges", at("edges", "*.parquet"), "--nodes", at("nodes", "*.parquet"), "--id", "id"]
    columns = ["--features", "x", "--label", "y", "--split", "split", "--symmetrize", "--deduplicate"]
    ingest = [*sar, "ingest", *tables, *columns, "--memory", a.memory, "--out", at("graph")]
    cut = [*sar, "partition", at("graph"), "--parts", str(a.parts), "--method", "fennel", "--format", "sar"]
    parts = at("parts", "g.json")
    saved = "model.safetensors"
    infer = [*sar, "infer", f"{model}:build", "--checkpoint", at(saved), "--data", parts, *threads]
    return {
        "generate": ("nodes", ["-c", code.format(common.HERE, a.nodes, a.pairs, folder)]),
        "ingest": ("graph", ingest),
        "partition": ("parts", [*cut, "--memory", a.memory, "--name", "g", "--out", at("parts")]),
        "train": (saved, [*sar, "launch", "-n", str(a.parts), *threads, model, parts, at(saved), "2"]),
        "infer": ("pred.parquet", [*infer, "--argmax", "--out", at("pred.parquet")]),
        "gather": ("all.parquet", [*sar, "gather", at("pred.parquet"), "-o", at("all.parquet")]),
    }


def bytes_of(path: str) -> int:
    """Of a file, or of the files in a directory."""
    files = glob.glob(os.path.join(path, "**"), recursive=True) if os.path.isdir(path) else [path]
    return sum(os.path.getsize(f) for f in files if os.path.isfile(f))


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--scratch", required=True, help="directory that keeps what is made")
    p.add_argument("--nodes", type=int, default=16_000_000)
    p.add_argument("--pairs", type=int, default=548_000_000, help="each gives two edges; some are repetitions")
    p.add_argument("--parts", type=int, default=4)
    p.add_argument("--memory", default="4GiB", help="of sar ingest and sar partition")
    p.add_argument("--until", help="the last step to run")
    a = p.parse_args()
    folder, record = a.scratch, os.path.join(a.scratch, "steps.json")
    os.makedirs(folder, exist_ok=True)
    done: dict[str, dict] = {}
    if os.path.exists(record):
        with open(record, encoding="utf-8") as file:
            done = json.load(file)
    try:
        for name, (result, words) in steps(a, folder).items():
            if name not in done:
                with stage(name):
                    took = watch([sys.executable, *words])
                print("\n".join(took.steps + took.output.splitlines()), flush=True)
                made = [result, "edges"] if name == "generate" else [result]
                done[name] = {
                    "seconds": took.seconds,
                    "processors": took.processor_seconds,
                    "peak": took.peak,
                    "bytes": sum(bytes_of(os.path.join(folder, one)) for one in made),
                }
                with open(record, "w", encoding="utf-8") as file:
                    json.dump(done, file)
            if name == a.until:
                break
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    cells = [
        [n, f"{d['seconds']:.0f}", f"{d['processors']:.0f}", size(d["peak"]), size(d["bytes"])] for n, d in done.items()
    ]
    print(f"\n{table(['step', 'seconds', 'of processors', 'peak', 'makes'], cells)}\n", flush=True)
    common.save("billion", {"machine": common.machine(), "nodes": a.nodes, "pairs": a.pairs, "steps": done})
    return 0


if __name__ == "__main__":
    sys.exit(main())
