"""Cutting a large graph: time to the written parts, time and memory of the cut alone, edge cut, by method.

A graph directory of 4 M nodes and 100 M directed edges is generated (scale_graph.py). Memory is the resident memory of
`sar partition` and its children together, at its peak; file pages that are mapped count, the page cache does not.

    python bench/partition.py [--nodes 4000000] [--edges 108000000] [--parts 16]
                              [--methods fennel,kaminpar,metis,random] [--graph DIR]
                              [--scratch DIR] [--options "--hosts 4"]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys

import common
import graph_directory
import scale
from sar.cli.output import Failure, stage, table
from sar.units import size
from watched import watch

METHODS = ("random", "fennel", "kaminpar", "metis")
METIS_BYTES = 14 << 30  # that have to be free


def measure(graph: str, out: str, parts: int, method: str, options: list[str]) -> dict:
    """``sar partition`` of one method: seconds, of the processors too, peak memory, and the report."""
    report = f"{out}.json"
    words = ["--parts", str(parts), "--method", method, "--name", "g", "--out", out, "--report", report, *options]
    took = watch([sys.executable, "-m", "sar", "partition", graph, *words])
    with open(report, encoding="utf-8") as file:
        content = json.load(file)
    return {
        "method": method,
        "seconds": took.seconds,
        "processor_seconds": took.processor_seconds,
        "peak": took.peak,
        "peaks": took.peaks,
        "steps": took.steps,
        "cut": content["edge_cut_fraction"],
        "node_balance": content["node_balance"],
        "edge_balance": content["edge_balance"],
        "cut_between_hosts": content["cut_between_hosts"],
    }


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nodes", type=int, default=4_000_000)
    p.add_argument("--edges", type=int, default=108_000_000, help="some are repetitions, which are dropped")
    p.add_argument("--parts", type=int, default=16)
    p.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    p.add_argument("--graph", help="a graph directory in place of a generated one")
    p.add_argument("--options", type=shlex.split, default=[], help="more options of sar partition")
    p.add_argument("--scratch", help="directory for what is made, removed at the end (default: TMPDIR)")
    p.add_argument("--name", default="partition", help="of the JSON file in bench/out (default: partition)")
    a = p.parse_args()
    try:
        machine = common.machine()
        print(common.machine_line(machine), flush=True)
        rows = []
        with scale.scratch(a.scratch, 60 * a.edges) as folder:
            graph = a.graph or os.path.join(folder, "graph")
            if a.graph is None:
                with stage("generating") as step:
                    edges = graph_directory.write(graph, a.nodes, a.edges, progress=step.progress)
                    step.note = f"{a.nodes:,} nodes, {edges:,} edges"
            for method in a.methods:
                if method == "metis" and scale.available() < METIS_BYTES:
                    print(f"metis is left out: {size(scale.available())} of memory are free", flush=True)
                    continue
                out = os.path.join(folder, method)
                with stage(f"sar partition --method {method}"):
                    rows.append(measure(graph, out, a.parts, method, a.options))
                subprocess.run(["rm", "-rf", out], check=True)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    header = ["method", "seconds", "of processors", "peak MiB", "cut", "nodes", "in-edges"]
    cells = [
        [r["method"], f"{r['seconds']:.0f}", f"{r['processor_seconds']:.0f}", f"{r['peak'] / common.MIB:.0f}"]
        + [f"{r['cut']:.4f}", f"{r['node_balance']:.3f}", f"{r['edge_balance']:.3f}"]
        for r in rows
    ]
    print(f"\n{table(header, cells)}\n", flush=True)
    for r in rows:
        print("\n".join([r["method"], *(f"  {line}" for line in r["steps"])]))
    common.save(a.name, {"machine": machine, "parts": a.parts, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
