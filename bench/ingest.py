"""sar ingest of 50 M pairs of ids in Parquet files, symmetrized and deduplicated: seconds and peak memory.

Pairs of 4 M nodes (scale_graph.py) are written a million at a time. Ids are the numbers of the nodes, integers of 40
bits far apart, or text of up to 18 characters. Memory is the resident memory of `sar ingest` and its children together,
at its peak; the page cache does not count.

    python bench/ingest.py [--pairs 50000000] [--nodes 4000000] [--ids numbers,sparse,text] [--memory 1GiB]
                           [--files 8] [--scratch DIR] [--options "--threads 1"]
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import common
import scale
import scale_graph
from sar.cli.output import Failure, stage, table
from sar.units import size
from watched import watch

IDS = ("numbers", "sparse", "text")
MOST_SECONDS, MOST_BYTES, MOST_RATIO = 90, 3 << 29, 3  # ratio: of the time of text to that of numbers
_ODD, _BITS = 0x9E3779B97F4A7C15, 40  # multiplied with an odd number modulo a power of two, no two numbers meet


def ids_of(numbers: np.ndarray, kind: str) -> pa.Array:
    """The ids of nodes."""
    if kind == "numbers":
        return pa.array(numbers.astype(np.int64))
    sparse = pa.array((numbers.astype(np.uint64) * np.uint64(_ODD) & np.uint64((1 << _BITS) - 1)).astype(np.int64))
    return sparse if kind == "sparse" else pc.binary_join_element_wise("user-", sparse.cast(pa.string()), "")


def write_pairs(folder: str, nodes: int, pairs: int, kind: str, files: int) -> int:
    """Writes tables with the columns src and dst, and gives their bytes on disk."""
    os.makedirs(folder)
    runs = scale_graph.pairs(nodes, pairs, 2.0, 0)
    in_file = -(-pairs // scale_graph.CHUNK // files)  # runs
    number, writer = 0, None
    with stage(f"writing {pairs:,} pairs, ids: {kind}") as step:
        for k, ends in enumerate(runs):
            batch = pa.record_batch([ids_of(end, kind) for end in ends], ["src", "dst"])
            if k % in_file == 0:
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(f"{folder}/{k // in_file:03d}.parquet", batch.schema)
            writer.write_batch(batch)
            number += len(batch)
            step.progress(number, pairs, "pairs")
        writer.close()
        written = sum(entry.stat().st_size for entry in os.scandir(folder))
        step.note = size(written)
    return written


def measure(folder: str, kind: str, a: argparse.Namespace) -> dict:
    """Writes the tables of a kind of ids, makes a graph of them, and removes both."""
    tables, out = f"{folder}/{kind}", f"{folder}/{kind}-graph"
    written = write_pairs(tables, a.nodes, a.pairs, kind, a.files)
    words = ["--edges", f"{tables}/*.parquet", "--symmetrize", "--deduplicate", "--memory", a.memory, "--out", out]
    with stage(f"sar ingest, ids: {kind}"):
        took = watch([sys.executable, "-m", "sar", "ingest", *words, *a.options])
    counts = re.search(r"([\d,]+) nodes, ([\d,]+) edges", took.output)
    found = {"ids": kind, "tables": written, "nodes": counts[1], "edges": counts[2], **took._asdict()}
    found["graph"] = sum(os.path.getsize(os.path.join(at, f)) for at, _, files in os.walk(out) for f in files)
    shutil.rmtree(tables)
    shutil.rmtree(out)
    return {**found, "peak": took.peak}


def demands(rows: list[dict]) -> list[str]:
    """What has to hold, and whether it does."""
    seconds = {r["ids"]: r["seconds"] for r in rows}
    checks = []
    if "numbers" in seconds:
        checks.append(("integer ids", seconds["numbers"], MOST_SECONDS, "{:.1f} s"))
    if "numbers" in seconds and "text" in seconds:
        checks.append(("text to integer ids", seconds["text"] / seconds["numbers"], MOST_RATIO, "{:.2f}x"))
    checks += [(f"peak, ids: {r['ids']}", r["peak"] / common.MIB, MOST_BYTES / common.MIB, "{:.0f} MiB") for r in rows]
    return [
        f"{name}: {form.format(value)}, at most {form.format(most)}: {'met' if value <= most else 'MISSED'}"
        for name, value, most, form in checks
    ]


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=50_000_000)
    p.add_argument("--nodes", type=int, default=4_000_000)
    p.add_argument("--ids", type=lambda text: text.split(","), default=list(IDS))
    p.add_argument("--memory", default="1GiB")
    p.add_argument("--files", type=int, default=8)
    p.add_argument("--options", type=shlex.split, default=[], help="more options of sar ingest")
    p.add_argument("--scratch", help="directory for what is made, removed at the end (default: TMPDIR)")
    a = p.parse_args()
    try:
        machine = common.machine()
        print(common.machine_line(machine), flush=True)
        with scale.scratch(a.scratch, 120 * a.pairs) as folder:
            rows = [measure(folder, kind, a) for kind in a.ids]
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    header = ["ids", "tables MiB", "graph MiB", "nodes", "edges", "seconds", "of processors", "peak MiB"]
    cells = [
        [r["ids"], f"{r['tables'] / common.MIB:.0f}", f"{r['graph'] / common.MIB:.0f}", r["nodes"], r["edges"]]
        + [f"{r['seconds']:.1f}", f"{r['processor_seconds']:.1f}", f"{r['peak'] / common.MIB:.0f}"]
        for r in rows
    ]
    print(f"\n{table(header, cells)}\n", flush=True)
    for r in rows:
        steps = [f"  {line} ({peak / common.MIB:.0f} MiB)" for line, peak in zip(r["steps"], r["peaks"])]
        print("\n".join([f"ids: {r['ids']}", *steps]))
    print("\n".join(["", *demands(rows)]))
    common.save("ingest", {"machine": machine, "memory": a.memory, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
