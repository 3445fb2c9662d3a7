"""A graph of 100 million edges on one machine: generated, cut into parts, loaded, constructed and trained on, each step
by the tools of the package, with its time and memory.

4 M nodes with 128 features, 100 M directed edges, 2 layers of SAGE with 64 hidden, 4 workers. Training is measured on
the parts of each method named by --train. Memory of workers is resident memory over what an idle worker with torch has
("base"), at its peak; "of it" splits the heaviest worker's by purpose: node features, what the engine holds, and what
is left, which is torch's activations and gradients.

    python bench/large.py [--nodes 4000000] [--edges 100000000] [--parts 4] [--methods random,contiguous,metis]
                          [--train random] [--model sage] [--epochs 3] [--skew 2] [--hub 0] [--scratch DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys

import common
import scale
from sar.cli.output import Failure, table
from sar.units import size

METHODS = ("random", "contiguous", "metis")
# METIS with 64-bit indices, measured: bytes an undirected edge, beside what Python takes.
METIS_BYTES = 200


def methods_that_fit(wanted: list[str], edges: int) -> list[str]:
    """Without METIS where memory is short, which is said."""
    needed, free = METIS_BYTES * edges // 2, scale.available()
    if "metis" in wanted and needed > free:
        print(f"metis is left out: it takes about {size(needed)}, and {size(free)} are available", flush=True)
        return [m for m in wanted if m != "metis"]
    return wanted


def run(a: argparse.Namespace) -> dict:
    graph = scale.graph_bytes(a.nodes, a.edges)
    parts = scale.parts_bytes(a.nodes, a.edges)
    result: dict = {"nodes": a.nodes, "edges": a.edges, "parts": a.parts, "skew": a.skew, "hub": a.hub}
    result["partition"], result["train"] = [], []
    with scale.scratch(a.scratch, graph + parts) as folder:
        path, result["generate"] = scale.make_graph(folder, a.nodes, a.edges, a.skew, a.hub)
        for method in methods_that_fit(a.methods, a.edges):
            out = os.path.join(folder, method)
            description, made = scale.make_parts(path, out, a.parts, method)
            result["partition"].append(made)
            if method in a.train:
                trained = scale.train(description, a.parts, a.model, a.epochs, a.allocator, a.transport)
                result["train"].append({"method": method, **trained})
            shutil.rmtree(out)
    return result


def gib(count: float) -> str:
    return f"{count / scale.GIB:.2f}"


def render(result: dict) -> str:
    made = result["generate"]
    lines = [
        f"{result['nodes']:,} nodes, {result['edges']:,} edges, {scale.FEATURES} features, {result['parts']} parts",
        f"generated in {made['seconds']:.0f} s, {size(made['bytes'])} on disk",
        "",
        table(
            ["sar partition", "seconds", "assigning", "counting", "writing", "peak GiB", "edges cut %", "on disk GiB"],
            [
                [p["method"], f"{p['seconds']:.0f}", *_stages(p["stages"]), gib(p["peak"]), p["cut_percent"]]
                + [gib(p["bytes"])]
                for p in result["partition"]
            ],
        ),
    ]
    header = ["training on parts by", "load s", "construct s", "first epoch s", "epoch s", "of processors s", "loss"]
    lines += ["", table(header, [_times(t) for t in result["train"]])]
    header = ["memory of a worker, GiB", "base", "constructed", "while constructing", "while training", "planned"]
    header += ["all workers", "sent in an epoch, all"]
    lines += ["", table(header, [_sizes(t) for t in result["train"]])]
    header = ["of it, GiB", "features", "structure", "window", "runtime", "scratch while constructing", "rest"]
    lines += ["", table(header, [_purposes(t) for t in result["train"]])]
    return "\n".join(lines)


def _stages(stages: dict[str, float]) -> list[str]:
    """Assigning, counting, writing."""
    kinds = [0.0, 0.0, 0.0]
    for name, seconds in stages.items():
        kinds[1 if name.startswith("counting") else 2 if name.startswith("writing") else 0] += seconds
    return [f"{k:.1f}" for k in kinds]


def _times(t: dict) -> list[str]:
    seconds = [t["load"]["took"], t["construct"]["took"], t["first"]["took"], statistics.median(t["train"]["seconds"])]
    return [t["method"], *(f"{s:.1f}" for s in seconds), f"{t['train']['cpu']:.1f}", f"{t['train']['loss']:.5f}"]


def _sizes(t: dict) -> list[str]:
    peaks = [t["base"], t["construct"]["resident"], t["construct"]["resident_peak"], t["train"]["resident_peak"]]
    return [t["method"], *map(gib, [*peaks, t["planned"], t["train"]["resident_all"], t["sent"]])]


def _purposes(t: dict) -> list[str]:
    live, peak = t["engine_live"], t["engine_peak"]
    known = [t["load"]["feature_bytes"], live["structure"], live["window"], live["runtime"]]
    rest = t["train"]["resident_peak"] - sum(known)
    return [t["method"], *map(gib, known), gib(peak["scratch"]), gib(rest)]


def words(text: str) -> list[str]:
    return [w for w in text.split(",") if w]


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nodes", type=int, default=4_000_000)
    p.add_argument("--edges", type=int, default=100_000_000)
    p.add_argument("--parts", type=int, default=4)
    p.add_argument("--methods", type=words, default=list(METHODS), help="of sar partition (default: all three)")
    p.add_argument("--train", type=words, default=["random"], help="parts to train on, by method (default: random)")
    p.add_argument("--model", choices=("sage", "gat"), default="sage")
    p.add_argument("--epochs", type=int, default=3, help="after the first (default: 3)")
    p.add_argument("--skew", type=float, default=2.0, help="of popularity; 1: all nodes alike (default: 2)")
    p.add_argument("--hub", type=int, default=0, help="in-edges of one node beside the others (default: 0)")
    p.add_argument("--allocator", choices=("pool", "compact", "default"), default="pool")
    p.add_argument("--transport", choices=("", "shm", "tcp"), default="")
    p.add_argument("--scratch", help="directory for what is made, removed at the end (default: TMPDIR)")
    p.add_argument("--name", default="large", help="of the JSON file in bench/out (default: large)")
    a = p.parse_args()
    for method in {*a.methods, *a.train} - set(METHODS):
        p.error(f"there is no method {method!r}: {', '.join(METHODS)}")
    try:
        machine = common.machine()
        print(common.machine_line(machine), flush=True)
        result = run(a)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    print(f"\n{render(result)}\n", flush=True)
    common.save(a.name, {"machine": machine, **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
