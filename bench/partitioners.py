"""Partitioners by what has to travel: rows, and rows or partial sums, in total and of the slowest worker.

    python bench/partitioners.py [--graphs cora,cornell5,rmat,bench] [--parts 4,8,16] [--cuts mtkahypar,metis:cut,...]

A worker needs each row of another part that one of its edges begins at. Where an edge's destination has a partial sum
sent instead, its source need not be; the fewest rows and sums that serve all edges of a pair of parts are a minimum
vertex cover, which is as large as a maximum matching. Of a worker, what it sends or what it receives counts, whichever
is more. Memory is that of the process that cuts and of its child, with Python and the graph, at its peak.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import maximum_bipartite_matching

import common
from sar.cli.output import stage, table
from sar.partitioning.dataset import Dataset
from sar.partitioning.limits import available
from sar.partitioning.methods import assign
from sar.partitioning.options import Options
from watched import watch

CUTS = "metis:cut,metis:volume,mtkahypar:volume,mtkahypar:cut,kaminpar:cut,fennel:cut,fennel:volume"
SCALE, QUADRANTS = 18, (0.57, 0.19, 0.19, 0.05)  # of the R-MAT graph


def graph_file(name: str) -> str:
    """The path of a graph by its name, made where it is missing; or of any other .npz file."""
    if name == "bench":
        return common.bench_graph()
    if name in ("cora", "citeseer", "cornell5"):
        return os.path.join(common.ROOT, "examples", "data", f"{name}.npz")
    path = os.path.join(common.WORK, f"{name}.npz")
    if name in ("rmat", "rmat-directed") and not os.path.exists(path):
        directed = name == "rmat-directed"
        np.savez(path, edge_index=rmat(1_985_000 if directed else 992_500, directed), num_nodes=1 << SCALE)
    return path if os.path.exists(path) else name


def rmat(pairs: int, directed: bool) -> np.ndarray:
    """Edges ``[2, E]`` of a graph with hubs, without loops and repetitions; about 1.9 M are left."""
    rng = np.random.default_rng(0)
    ends = np.zeros((2, pairs), np.int64)
    for _ in range(SCALE):
        quadrant = rng.choice(4, pairs, p=QUADRANTS)
        ends = 2 * ends + np.stack([quadrant >> 1, quadrant & 1])
    ends = rng.permutation(1 << SCALE)[ends]
    ends = ends[:, ends[0] != ends[1]]
    if not directed:
        ends = np.concatenate([ends, ends[::-1]], axis=1)
    key = np.unique(ends[0] << SCALE | ends[1])
    return np.stack([key >> SCALE, key & ((1 << SCALE) - 1)]).astype(np.int32)


def covers(edges: np.ndarray, assignment: np.ndarray, parts: int) -> np.ndarray:
    """``[p, q]``: the fewest rows and sums that q has to send to p."""
    source, destination = assignment[edges[0]], assignment[edges[1]]
    pair = np.where(source != destination, destination.astype(np.int64) * parts + source, -1)
    order = np.argsort(pair, kind="stable")
    begins = np.searchsorted(pair[order], np.arange(parts * parts + 1))
    found = np.zeros(parts * parts, np.int64)
    for at in np.flatnonzero(np.diff(begins)):
        taken = order[begins[at] : begins[at + 1]]
        (left, row), (right, column) = (np.unique(edges[end, taken], return_inverse=True) for end in (0, 1))
        matrix = sparse.csr_matrix((np.ones(len(taken), np.int8), (row, column)), (len(left), len(right)))
        found[at] = int((maximum_bipartite_matching(matrix, "column") >= 0).sum())
    return found.reshape(parts, parts)


def slowest(travels: np.ndarray) -> int:
    """The most that one worker sends or receives."""
    return int(max(travels.sum(0).max(), travels.sum(1).max()))


def measure(graph: str, edges: np.ndarray, cut: str, parts: int, memory: int) -> dict:
    out = os.path.join(common.WORK, "partitioners.npy")
    took = watch([sys.executable, __file__, "--only", graph, cut, str(parts), out, str(memory)])
    assignment = np.load(out)
    os.unlink(out)
    with Dataset(graph) as dataset:
        quality = dataset.quality(assignment, parts)
    rows, least = np.array(quality["boundary"]), covers(edges, assignment, parts)
    return {
        "cut": cut,
        "parts": parts,
        "rows": int(rows.sum()),
        "rows_slowest": slowest(rows),
        "cover": int(least.sum()),
        "cover_slowest": slowest(least),
        "edge_cut": quality["edge_cut_fraction"],
        "balance": quality["node_balance"],
        "edge_balance": quality["edge_balance"],
        "seconds": float(took.output),
        "peak": took.peak,
    }


def only(graph: str, cut: str, parts: str, out: str, memory: str) -> int:
    """Cuts, in a process whose memory is watched."""
    method, _, objective = cut.partition(":")
    options = Options(int(parts), objective=objective or None, memory=int(memory), scratch=common.WORK)
    with Dataset(graph) as dataset:
        begin = time.perf_counter()
        assignment = assign(dataset, method, options, stage)
        print(time.perf_counter() - begin)
    np.save(out, assignment)
    return 0


def main() -> int:
    if sys.argv[1:2] == ["--only"]:
        return only(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = "cora, citeseer, cornell5, rmat, rmat-directed, bench, or an .npz file"
    p.add_argument("--graphs", default="cora,cornell5,rmat,bench", help=names)
    p.add_argument("--parts", default="4,8,16", help="numbers of parts (4,8,16)")
    p.add_argument("--cuts", default=CUTS, help=f"methods with their objectives ({CUTS}); shares are of the first")
    p.add_argument("--name", default="partitioners", help="of the JSON file in bench/out (partitioners)")
    a = p.parse_args()
    machine = common.machine()
    print(common.machine_line(machine))
    results = {}
    os.makedirs(common.WORK, exist_ok=True)
    for name in a.graphs.split(","):
        path = graph_file(name)
        with np.load(path) as arrays:
            edges = arrays["edge_index"]
        rows: list[dict] = []
        for parts in (int(n) for n in a.parts.split(",")):
            for cut in a.cuts.split(","):
                with stage(f"{name}: {parts} parts by {cut}"):
                    rows.append(measure(path, edges, cut, parts, available()))
        results[name] = rows
        print(f"\n{name}: {edges.shape[1]:,} directed edges\n\n{shown(rows)}\n", flush=True)
    common.save(a.name, {"machine": machine, "graphs": results})
    return 0


def shown(rows: list[dict]) -> str:
    """A table; shares are of the first cut with as many parts, whose rows are 1."""
    header = ["parts", "cut", "rows", "", "slowest", "", "cover", "", "slowest", "", "edges cut", "nodes", "in-edges"]
    cells = []
    for row in rows:
        first = next(r for r in rows if r["parts"] == row["parts"])
        line = [row["parts"], row["cut"]]
        for key in ("rows", "rows_slowest", "cover", "cover_slowest"):
            base = first["rows_slowest" if "slowest" in key else "rows"]
            line += [f"{row[key]:,}", f"{row[key] / max(1, base):.2f}"]
        line += [f"{row['edge_cut']:.3f}", f"{row['balance']:.3f}", f"{row['edge_balance']:.2f}"]
        cells.append([*line, f"{row['seconds']:.1f}", f"{row['peak'] / common.MIB:.0f}"])
    return table([*header, "seconds", "peak MiB"], cells, left=2)


if __name__ == "__main__":
    sys.exit(main())
