"""How cost grows with the graph: time and memory of an epoch from 1 million edges to 100 million, 25 edges a node, and
the exponent of the growth, which is 1 where cost is linear.

Two workers on random parts (half the edges cut), a 2-layer SAGE of 64 and a 2-layer GAT of 4 heads of 16, then one.
Exponents come from a straight line through the logarithms, over all sizes and between neighbours. "aggregation" is one
sum of 64 columns over all in-edges, forward, in nanoseconds an edge: what an epoch consists of beside dense products,
whose time a node is the same everywhere. Memory is the heaviest worker's growth over an idle worker with torch.

    python bench/growth.py [--sizes 1,3,10,30] [--big] [--models sage,gat] [--parts 2] [--epochs 3] [--scratch DIR]
                           [--earlier NAME,...]
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import statistics
import sys

import numpy as np

import common
import scale
from sar.cli.output import Failure, table
from sar.units import size

DEGREE = 25
HIDDEN = 64


def measure(millions: float, a: argparse.Namespace) -> list[dict]:
    """Every model on a graph of one size."""
    edges = round(millions * 1e6)
    nodes = edges // DEGREE
    needed = scale.graph_bytes(nodes, edges) + scale.parts_bytes(nodes, edges)
    with scale.scratch(a.scratch, needed) as folder:
        path, made = scale.make_graph(folder, nodes, edges, a.skew, 0)
        description, cut = scale.make_parts(path, os.path.join(folder, "parts"), a.parts, "random")
        os.remove(path)
        sides = {"edges": edges, "nodes": nodes, "generate": made, "partition": cut}
        return [{**sides, **scale.train(description, a.parts, model, a.epochs, a.allocator)} for model in a.models]


def caches() -> dict[str, int]:
    """Bytes of the caches above the first level: ``{"L2": .., "L3": ..}``, of one of each."""
    found = {}
    for folder in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"):
        with open(f"{folder}/level", encoding="ascii") as level, open(f"{folder}/size", encoding="ascii") as bytes_:
            number, text = int(level.read()), bytes_.read().strip()
        if number > 1:
            found[f"L{number}"] = int(text.rstrip("KM")) * (1 << 20 if text.endswith("M") else 1 << 10)
    return dict(sorted(found.items()))


def exponent(edges: list[float], costs: list[float]) -> float:
    """Slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(edges), np.log(costs), 1)[0])


def earlier(name: str) -> list[dict]:
    """Rows of a run that is in bench/out."""
    with open(os.path.join(common.OUT, f"{name}.json"), encoding="utf-8") as file:
        return json.load(file)["rows"]


def costs(row: dict) -> dict[str, float]:
    return {
        "epoch s": statistics.median(row["train"]["seconds"]),
        "processor s": row["train"]["cpu"],
        "aggregation": row["aggregate"],
        "construct s": row["construct"]["took"],
        "partition s": max(0.05, sum(row["partition"]["stages"].values())),  # tenths of a second are told
        "memory": float(row["train"]["resident_peak"]),
        "structure": float(row["engine_live"]["structure"]),
    }


def render(rows: list[dict]) -> str:
    header = ["edges", "nodes", "epoch s", "ns an edge", "processor ns an edge", "aggregation ns an edge"]
    header += ["construct s", "partition s", "worker MiB", "bytes an edge", "structure bytes an edge"]
    lines = []
    for row in rows:
        c, edges, own = costs(row), row["edges"], max(row["edges_own"])
        lines.append(
            [f"{edges / 1e6:g} M", f"{row['nodes']:,}", f"{c['epoch s']:.3f}", f"{1e9 * c['epoch s'] / edges:.0f}"]
            + [f"{1e9 * c['processor s'] / edges:.0f}", f"{1e9 * c['aggregation'] / edges:.2f}"]
            + [f"{c['construct s']:.2f}", f"{c['partition s']:.2f}", f"{c['memory'] / common.MIB:.0f}"]
            + [f"{c['memory'] / own:.1f}", f"{c['structure'] / own:.1f}"]
        )
    if len(rows) < 2:
        return table(header, lines)
    edges = [row["edges"] for row in rows]
    all_costs = [costs(row) for row in rows]
    exponents = []
    for name in all_costs[0]:
        values = [c[name] for c in all_costs]
        steps = [exponent(edges[i : i + 2], values[i : i + 2]) for i in range(len(rows) - 1)]
        exponents.append([name, f"{exponent(edges, values):.2f}", *(f"{s:.2f}" for s in steps)])
    between = [f"{e / 1e6:g} to {f / 1e6:g} M" for e, f in zip(edges, edges[1:])]
    return table(header, lines) + "\n\n" + table(["exponent of", "over all", *between], exponents)


def breaks(rows: list[dict]) -> str:
    """What should bend the line, by the numbers."""
    lines = []
    for name, held in caches().items():
        nodes = held / (4 * HIDDEN)
        lines.append(
            f"{name} holds {size(held)}: {nodes:,.0f} rows of {HIDDEN} columns, which is a graph of "
            f"{nodes * DEGREE / 1e6:.1f} M edges where all workers share it. Beyond that rows come from further away."
        )
    plain = [r for r in rows if r["model"] == rows[0]["model"]]
    steps = [(b["aggregate"] * a["edges"] / (a["aggregate"] * b["edges"]), a, b) for a, b in zip(plain, plain[1:])]
    if steps:
        factor, a, b = max(steps, key=lambda step: step[0])
        lines.append(
            f"Measured: an edge of the aggregation costs {factor:.1f} times as much at {b['edges'] / 1e6:g} M edges "
            f"as at {a['edges'] / 1e6:g} M, the steepest step; rows of {HIDDEN} columns then take "
            f"{size(4 * HIDDEN * b['nodes'])} in place of {size(4 * HIDDEN * a['nodes'])}."
        )
    fixed = statistics.median(row["engine_live"]["window"] + row["engine_live"]["runtime"] for row in rows)
    lines.append(
        f"A worker's window and the engine's runtime take {size(fixed)} whatever the graph: memory starts there."
    )
    return "\n".join(lines)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sizes", default="1,3,10,30", help="millions of edges (default: 1,3,10,30)")
    p.add_argument("--big", action="store_true", help="100 million as well")
    p.add_argument("--models", default="sage,gat", help="of sage, gat (default: both)")
    p.add_argument("--parts", type=int, default=2, help="workers (default: 2)")
    p.add_argument("--epochs", type=int, default=3, help="after the first (default: 3)")
    p.add_argument("--skew", type=float, default=2.0, help="of popularity; 1: all nodes alike (default: 2)")
    p.add_argument("--allocator", choices=("pool", "compact", "default"), default="pool")
    p.add_argument("--earlier", default="", help="names of earlier runs in bench/out to show with this one, a,b,...")
    p.add_argument("--scratch", help="directory for what is made, removed at the end (default: TMPDIR)")
    p.add_argument("--name", default="growth", help="of the JSON file in bench/out (default: growth)")
    a = p.parse_args()
    a.models = a.models.split(",")
    sizes = [float(s) for s in a.sizes.split(",") if s] + [100.0] * a.big
    try:
        machine = common.machine()
        print(common.machine_line(machine), flush=True)
        rows = [row for name in a.earlier.split(",") if name for row in earlier(name)]
        rows += [row for millions in sizes for row in measure(millions, a)]
        rows.sort(key=lambda row: row["edges"])
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    for model in a.models:
        print(f"\n{model}, {a.parts} workers\n{render([r for r in rows if r['model'] == model])}", flush=True)
    print(f"\n{breaks(rows)}\n")
    common.save(a.name, {"machine": machine, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
