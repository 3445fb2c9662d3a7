"""``sar partition``: cuts a graph into parts and writes them in DGL's partition format."""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import sys
from typing import Any

from sar.data.directory import open_regular

from .output import Failure, stage, table

_PYMETIS = "pymetis==2025.2.2"  # a wheel with METIS 5.2.1 inside; reads CSR arrays without copying them
_LONG = 10_000_000  # neighbours from which METIS takes some seconds
_DESCRIPTION = """\
Cuts a graph into parts and writes DGL's partition format: OUT/NAME.json and OUT/part0, part1, …
Beside DGL's files, each part has checksums of them, which loading and `sar info --verify` hold the files against.

GRAPH is a graph directory, graph.json and the .npy files that it names, or an .npz file.

An .npz file has edge_index, integers [2, edges]: edge k goes from node edge_index[0, k] to edge_index[1, k].
Its other arrays are features: those with one row per node become node features (x is called "features" and y "labels"),
those with one row per edge, edge features. Any dtype is kept; bool is stored as uint8. The node's and the edge's number
in GRAPH is kept as the feature "orig_id".

A graph of several types has one such array for each relation, source:relation:destination/edge_index, whose numbers
count the nodes of a type, and features under type/name or source:relation:destination/name.
"""


def add(commands: Any) -> None:
    p = commands.add_parser(
        "partition",
        help="cut a graph into parts",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("graph", metavar="GRAPH", help="the graph, a directory or an .npz file")
    p.add_argument("--parts", "-n", type=_positive, required=True, metavar="P", help="number of parts: one per worker")
    p.add_argument("--out", "-o", required=True, metavar="DIR", help="directory to write to; made if missing")
    p.add_argument("--name", metavar="NAME", help="name of the graph (default: name of the directory or file)")
    p.add_argument(
        "--method",
        choices=("metis", "random", "contiguous"),
        help="metis: few cut edges; random: parts of equal numbers of nodes; contiguous: runs of node numbers with "
        "equal numbers of in-edges (default: metis where pymetis is installed, else contiguous)",
    )
    p.add_argument(
        "--self-loops", action="store_true", help="give every node that lacks one an edge to itself, as GCN wants it"
    )
    p.add_argument(
        "--balance",
        choices=("nodes", "both"),
        default="nodes",
        help="what METIS gives parts equal shares of: nodes, or nodes and edges weighed together (default: nodes)",
    )
    p.add_argument("--seed", type=int, default=0, metavar="S", help="for metis and random (default: 0)")
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    method = arguments.method or _default_method()
    pymetis = _import_pymetis() if method == "metis" else None
    name = arguments.name or _name_of(arguments.graph)
    if os.sep in name or not name:
        raise Failure(f"--name {name!r} must be a plain file name", 2)
    if not os.path.exists(arguments.graph):
        raise Failure(f"there is no file or directory {arguments.graph}")
    _refuse_to_overwrite(arguments.out, name)

    from sar.partitioning.dataset import Dataset

    with contextlib.ExitStack() as cleanup:
        with stage(f"reading {arguments.graph}") as step:
            dataset = cleanup.enter_context(Dataset(arguments.graph))
            step.note = f"{dataset.num_nodes:,} nodes, {dataset.num_edges:,} edges"
        if arguments.self_loops:
            if len(dataset.info["node_types"]) > 1 or len(dataset.info["edge_types"]) > 1:
                raise Failure(
                    f"--self-loops is for graphs of one type; {arguments.graph} has several: add the edges yourself", 2
                )
            if dataset.info["edge_arrays"]:
                names = ", ".join(a["name"] for a in dataset.info["edge_arrays"])
                raise Failure(
                    f"--self-loops: the new edges would have no values in {names}; "
                    f"add them to {arguments.graph} yourself"
                )
            with stage("adding self loops") as step:
                dataset.add_self_loops()
                step.note = f"{dataset.num_edges:,} edges now"
        if arguments.parts > max(1, dataset.num_nodes):
            raise Failure(f"--parts {arguments.parts} is more than the {dataset.num_nodes} nodes of the graph", 2)
        if pymetis is not None:
            assignment = metis(dataset, arguments.parts, arguments.seed, pymetis, arguments.balance)
        else:
            with stage(f"assigning nodes ({method})"):
                assignment = dataset.assign(method, arguments.parts, arguments.seed)
        with stage("counting cut edges and boundary rows"):
            quality = dataset.quality(assignment, arguments.parts)
        with stage(f"writing {arguments.parts} parts to {arguments.out}") as step:
            dataset.write(assignment, arguments.parts, arguments.out, name, method, step.progress)
    print(report(quality, method))
    print(f"\nwrote {os.path.join(arguments.out, name + '.json')}")
    return 0


def _name_of(graph: str) -> str:
    """The name of a graph directory, or of an ``.npz`` file without its ending."""
    if os.path.isdir(graph):
        return os.path.basename(os.path.abspath(graph))
    return os.path.splitext(os.path.basename(graph))[0]


def _refuse_to_overwrite(out: str, name: str) -> None:
    """Parts of every graph have the same file names, so a directory has room for one graph."""
    for file in sorted(glob.glob(os.path.join(glob.escape(out), "*.json"))):
        if os.path.basename(file) == f"{name}.json":
            continue
        with contextlib.suppress(OSError, ValueError), open_regular(file) as handle:
            content = json.load(handle)
            if isinstance(content, dict) and "part-0" in content:
                raise Failure(
                    f"{out} holds the parts of another graph ({os.path.basename(file)}), which would be overwritten: "
                    "give another directory as --out",
                    2,
                )


def metis(dataset: Any, parts: int, seed: int, pymetis: Any, balance: str = "nodes") -> Any:
    """METIS's assignment int32 [num_nodes]: k-way, few cut edges. ``balance`` is what parts have equal shares of:
    ``"nodes"``, which memory and dense layers follow, or ``"both"``: a node weighs 1 + degree / average degree."""
    import numpy as np

    index = pymetis.zero_copy_dtype() if hasattr(pymetis, "zero_copy_dtype") else np.dtype(np.int32)
    with stage("building the undirected adjacency"):
        xadj, adjncy = dataset.adjacency(index)
    if parts == 1:
        return np.zeros(dataset.num_nodes, np.int32)
    weight = None
    if balance == "both":
        degree = np.diff(xadj)
        weight = np.rint(8 * (1 + degree / max(1.0, float(degree.mean())))).astype(index)
    what = f"cutting {len(xadj) - 1:,} nodes and {len(adjncy) // 2:,} undirected edges into {parts} with METIS"
    with stage(what) as step:
        if len(adjncy) > _LONG:
            step.announce()
        adjacency = (
            {"adjacency": pymetis.CSRAdjacency(xadj, adjncy)}
            if hasattr(pymetis, "CSRAdjacency")
            else {"xadj": xadj, "adjncy": adjncy}
        )
        options = pymetis.Options(seed=seed)
        _, membership = pymetis.part_graph(parts, vweights=weight, recursive=False, options=options, **adjacency)
    return _without_empty_parts(np.asarray(membership, dtype=np.int32), parts)


def _without_empty_parts(assignment: Any, parts: int) -> Any:
    """METIS may leave parts empty where parts are almost as many as nodes: gives each of them a node of the largest."""
    import numpy as np

    counts = np.bincount(assignment, minlength=parts)
    for empty in np.flatnonzero(counts == 0):
        largest = int(counts.argmax())
        assignment[np.flatnonzero(assignment == largest)[-1]] = empty
        counts[largest] -= 1
        counts[empty] += 1
    return assignment


def report(quality: dict[str, Any], method: str) -> str:
    """Tables of what a partition costs: nodes, in-edges and boundary rows per part, and boundary rows per pair."""
    nodes, edges, boundary = quality["nodes"], quality["edges"], quality["boundary"]
    parts = range(len(nodes))
    summary = table(
        ["part", "nodes", "in-edges", "reads of others", "read by others"],
        [
            [p, f"{nodes[p]:,}", f"{edges[p]:,}", f"{sum(boundary[p]):,}", f"{sum(row[p] for row in boundary):,}"]
            for p in parts
        ],
    )
    lines = [
        f"{method}: edge cut {quality['edge_cut']:,} of {sum(edges):,} edges "
        f"({100 * quality['edge_cut_fraction']:.1f} %), "
        f"balance {quality['node_balance']:.3f} in nodes, {quality['edge_balance']:.3f} in edges (largest / mean)",
        "",
        summary,
    ]
    if 1 < len(nodes) <= 16:
        pairs = table(
            ["boundary rows", *(f"of {q}" for q in parts)],
            [[f"{p} reads", *(f"{boundary[p][q]:,}" if p != q else "-" for q in parts)] for p in parts],
        )
        lines += ["", pairs]
    return "\n".join(lines)


def _default_method() -> str:
    try:
        import pymetis  # noqa: F401
    except ImportError:
        print(
            f"sar partition: pymetis is not installed, so parts are runs of node numbers. "
            f"For far fewer cut edges: pip install '{_PYMETIS}'",
            file=sys.stderr,
        )
        return "contiguous"
    return "metis"


def _import_pymetis() -> Any:
    try:
        import pymetis
    except ImportError as error:
        raise Failure(
            f"--method metis needs pymetis ({error}). Install it with  pip install '{_PYMETIS}'  "
            "or choose --method random or --method contiguous."
        ) from None
    return pymetis


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value
