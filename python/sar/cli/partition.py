"""``sar partition``: cuts a graph into parts and writes them in SAR's partition format or DGL's."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sar.partitioning.options import BALANCES, OBJECTIVES, Options
from sar.units import size

from .output import Failure, size_argument, stage, table

if TYPE_CHECKING:
    from sar.partitioning.dataset import Dataset
    from sar.partitioning.report import Report

_DESCRIPTION = """\
Cuts a graph into parts and writes OUT/NAME.json and OUT/part0, part1, …, in SAR's format or DGL's. A worker needs its
own part and NAME.json. Each part has checksums of its files, which loading and `sar info --verify` hold them against.

GRAPH is a graph directory, graph.json and the .npy files that it names, or an .npz file.

An .npz file has edge_index, integers [2, edges]: edge k goes from node edge_index[0, k] to edge_index[1, k].
Its other arrays are features: those with one row per node become node features (x is called "features" and y "labels"),
those with one row per edge, edge features. Any dtype is kept; bool is stored as uint8. The node's and the edge's number
in GRAPH is kept as the feature "orig_id".

A graph of several types has one such array for each relation, source:relation:destination/edge_index, whose numbers
count the nodes of a type, and features under type/name or source:relation:destination/name.

methods:
  mtkahypar   few rows that travel; minutes, and some 100 bytes of memory an edge; needs the package mtkahypar
  kaminpar    few cut edges; some 40 bytes of memory an undirected edge; needs the package kaminpar
  metis       few cut edges, or fewer rows; some 100 bytes of memory an edge; needs the package pymetis
  fennel      more cut edges, or few rows; reads edges from disk several times; some 16 bytes of memory a node
  random      parts of equal numbers of nodes
  contiguous  runs of node numbers, with equal numbers of in-edges
"""
_DEFAULT_LAYERS = "sage:256,relu,sage:256"


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
    p.add_argument(
        "--format",
        choices=("sar", "dgl"),
        help="sar: arrays as the engine wants them, which it maps; dgl: what dgl.distributed reads (default: sar for "
        "graph directories, dgl for .npz files)",
    )
    p.add_argument("--name", metavar="NAME", help="name of the graph (default: name of the directory or file)")
    how = p.add_mutually_exclusive_group()
    how.add_argument(
        "--method",
        choices=("mtkahypar", "kaminpar", "metis", "fennel", "random", "contiguous"),
        help="default: kaminpar where it is installed, else metis where pymetis is, where the memory does; else "
        "fennel; with --objective volume mtkahypar for small graphs, else metis or fennel",
    )
    how.add_argument(
        "--assignment",
        metavar="FILE",
        help="parts that another partitioner made: .npy, the part of each node in order; or Parquet with columns id "
        "and part, and type where the graph has several node types",
    )
    p.add_argument(
        "--objective",
        choices=OBJECTIVES,
        help="what there is to be little of: volume, rows that travel (mtkahypar, metis, fennel), or cut, edges "
        "between parts (all but random and contiguous); default: volume with mtkahypar, else cut",
    )
    p.add_argument(
        "--hosts",
        type=_positive,
        default=1,
        metavar="H",
        help="machines: cuts the graph for them first, and then for the parts of each, which are consecutive "
        "(default: 1)",
    )
    p.add_argument(
        "--balance",
        type=_balance,
        default=("nodes",),
        metavar="WHAT,...",
        help=f"what parts have equal shares of: {', '.join(BALANCES)} (by train_mask). fennel bounds each of several, "
        "kaminpar and metis weigh them together (default: nodes)",
    )
    p.add_argument(
        "--imbalance",
        type=_share,
        default=0.03,
        metavar="SHARE",
        help="how far a part may be above the mean of what is balanced (default: 0.03)",
    )
    p.add_argument("--seed", type=int, default=0, metavar="S", help="of what is drawn by chance (default: 0)")
    p.add_argument(
        "--self-loops", action="store_true", help="give every node that lacks one an edge to itself, as GCN wants it"
    )
    p.add_argument(
        "--features-dtype",
        choices=("bfloat16",),
        default="",
        help="round features of nodes, float32 or float64 in two or more dimensions, to a type of half the size",
    )
    p.add_argument(
        "--memory",
        type=size_argument,
        metavar="SIZE",
        help="memory that each step may take beside the program itself, such as 4GiB (default: what is free; then "
        "writing takes 4GiB, or more where nodes alone need it)",
    )
    p.add_argument("--scratch", metavar="DIR", help="directory of temporary files (default: that of --out)")
    p.add_argument("--report", metavar="FILE", help="write the report as JSON")
    p.add_argument("--picture", metavar="FILE", help="write a picture of the boundary rows of each pair of parts, PNG")
    p.add_argument(
        "--layers",
        default=_DEFAULT_LAYERS,
        metavar="L,L,...",
        help=f"model whose memory and traffic are predicted, as `sar plan` has it (default: {_DEFAULT_LAYERS})",
    )
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar.partitioning import methods, report as reports
    from sar.partitioning.dataset import Dataset
    from sar.partitioning.parts import PartsOptions, memory_to_write, write_parts

    name = arguments.name or _name_of(arguments.graph)
    _check(arguments, name)
    with contextlib.ExitStack() as cleanup:
        with stage(f"reading {arguments.graph}") as step:
            dataset = cleanup.enter_context(Dataset(arguments.graph))
            step.note = f"{dataset.num_nodes:,} nodes, {dataset.num_edges:,} edges"
        if arguments.self_loops:
            _add_self_loops(dataset, arguments.graph)
        if arguments.parts > max(1, dataset.num_nodes):
            raise Failure(f"--parts {arguments.parts} is more than the {dataset.num_nodes} nodes of the graph", 2)
        options = cleanup.enter_context(_options(arguments))
        form = arguments.format or ("sar" if os.path.isdir(arguments.graph) else "dgl")
        if arguments.assignment is not None:
            from sar.partitioning.assignment import read_assignment

            method = os.path.basename(arguments.assignment)
            methods.check_memory(dataset, "assignment", form, options)
            with stage(f"reading {arguments.assignment}"):
                assignment = read_assignment(arguments.assignment, dataset, options)
        else:
            tell = lambda note: print(f"sar partition: {note}", file=sys.stderr)  # noqa: E731
            method, assignment = methods.cut(dataset, arguments.method, form, options, stage, tell)
        with stage("counting cut edges and boundary rows"):
            quality = dataset.quality(assignment, arguments.parts)
            if "train" in options.balance:
                quality["train"] = reports.training_nodes(dataset, assignment, arguments.parts)
        with stage(f"writing {arguments.parts} parts to {arguments.out}") as step:
            memory = options.memory
            if arguments.memory is None:  # what is free: leave some to the page cache
                memory = min(memory, memory_to_write(dataset, arguments.parts, form))
            how = PartsOptions(name, method, form, memory, arguments.features_dtype)
            write_parts(dataset, assignment, arguments.parts, arguments.out, how, step.progress)
    description = os.path.join(arguments.out, name + ".json")
    layers = arguments.layers.split(",")
    plan, received = reports.plan(description, layers), reports.received(description, arguments.parts)
    report = reports.Report(method, quality, arguments.hosts, layers, plan, received)
    print(text_of(report))
    print(f"\nwrote {description}")
    if arguments.report:
        report.write_json(arguments.report)
        print(f"wrote {arguments.report}")
    if arguments.picture:
        reports.draw(report, arguments.picture)
        print(f"wrote {arguments.picture}")
    return 0


def _check(arguments: argparse.Namespace, name: str) -> None:
    """What can be refused before anything is read."""
    from sar.partitioning import methods, report as reports
    from sar.profiling.plan import estimate_memory

    if os.sep in name or not name:
        raise Failure(f"--name {name!r} must be a plain file name", 2)
    if arguments.parts % arguments.hosts:
        raise Failure(f"--parts {arguments.parts} cannot be spread evenly over --hosts {arguments.hosts}", 2)
    if not os.path.exists(arguments.graph):
        raise Failure(f"there is no file or directory {arguments.graph}")
    refuse_to_overwrite(arguments.out, name)
    if arguments.method is not None:
        try:
            methods.check_objective(arguments.method, arguments.objective)
        except ValueError as error:
            raise Failure(str(error), 2) from None
        methods.METHODS[arguments.method].library()
    elif arguments.assignment is not None and arguments.objective is not None:
        raise Failure("--objective: the parts of --assignment are cut already", 2)
    if arguments.picture:
        reports.require_matplotlib()
    for path in filter(None, (arguments.report, arguments.picture)):
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise Failure(f"there is no directory for {path}")
    estimate_memory(None, arguments.layers.split(","), in_features=1, num_nodes=1)  # are they layers?


@contextlib.contextmanager
def _options(arguments: argparse.Namespace) -> Iterator[Options]:
    """With a directory for temporary files. Where it has to be made and nothing is written to it, it goes again."""
    from sar.partitioning.limits import available

    scratch = arguments.scratch or arguments.out
    made = not os.path.isdir(scratch)
    os.makedirs(scratch, exist_ok=True)
    try:
        yield Options(
            parts=arguments.parts,
            hosts=arguments.hosts,
            balance=arguments.balance,
            imbalance=arguments.imbalance,
            objective=arguments.objective,
            seed=arguments.seed,
            memory=arguments.memory or available(),
            scratch=scratch,
        )
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(scratch)
        raise


def _add_self_loops(dataset: Dataset, graph: str) -> None:
    if len(dataset.info["node_types"]) > 1 or len(dataset.info["edge_types"]) > 1:
        raise Failure(f"--self-loops is for graphs of one type; {graph} has several: add the edges yourself", 2)
    if dataset.info["edge_arrays"]:
        names = ", ".join(a["name"] for a in dataset.info["edge_arrays"])
        raise Failure(f"--self-loops: the new edges would have no values in {names}; add them to {graph} yourself")
    with stage("adding self loops") as step:
        dataset.add_self_loops()
        step.note = f"{dataset.num_edges:,} edges now"


def _name_of(graph: str) -> str:
    """The name of a graph directory, or of an ``.npz`` file without its ending."""
    if os.path.isdir(graph):
        return os.path.basename(os.path.abspath(graph))
    return os.path.splitext(os.path.basename(graph))[0]


def refuse_to_overwrite(out: str, name: str) -> None:
    """Parts of every graph have the same file names, so a directory has room for one graph."""
    from sar.partitioning.parts import other_graph

    file = other_graph(out, name)
    if file is not None:
        raise Failure(
            f"{out} holds the parts of another graph ({file}), which would be overwritten: give another directory as "
            "--out",
            2,
        )


def text_of(report: Report) -> str:
    """Tables of what a partition costs: nodes, in-edges, boundary rows, predicted memory and traffic of each part, and
    boundary rows of each pair."""
    quality = report.quality
    nodes, edges, boundary = quality["nodes"], quality["edges"], quality["boundary"]
    parts = range(len(nodes))
    header = ["part", "nodes", "in-edges", "reads of others", "read by others"]
    rows = [
        [p, f"{nodes[p]:,}", f"{edges[p]:,}", f"{sum(boundary[p]):,}", f"{sum(row[p] for row in boundary):,}"]
        for p in parts
    ]
    if "train" in quality:
        header.append("to train on")
        for row, count in zip(rows, quality["train"]["nodes"]):
            row.append(f"{count:,}")
    if report.workers:
        header += ["peak memory", "sent an epoch"]
        for row, worker in zip(rows, report.workers):
            row += [size(worker.peak), size(worker.sent_per_epoch)]
    slowest, most, way = report.slowest
    lines = [
        f"{report.method}: {report.rows:,} rows travel for an aggregation, most {most:,}, which part {slowest} {way}: "
        "by that methods are compared",
        f"edge cut {quality['edge_cut']:,} of {sum(edges):,} edges ({100 * quality['edge_cut_fraction']:.1f} %), "
        f"balance {quality['node_balance']:.3f} in nodes, {quality['edge_balance']:.3f} in edges (largest / mean)",
    ]
    if "train" in quality:
        lines[-1] += f", {quality['train']['balance']:.3f} in nodes to train on"
    if report.hosts > 1:
        lines.append(f"{100 * report.between_hosts:.1f} % of the edges are between the {report.hosts} hosts")
    if report.received:
        lines.append(
            f"sums over edges send {sum(report.received):,} rows and partial sums, at most "
            f"{max(report.received):,} to a part; attention and max send rows"
        )
    lines += ["", table(header, rows)]
    if report.workers:
        lines.append(f"Memory and traffic are predicted for {','.join(report.layers)}, as `sar plan` does.")
    if 1 < len(nodes) <= 16:
        pairs = table(
            ["boundary rows", *(f"of {q}" for q in parts)],
            [[f"{p} reads", *(f"{boundary[p][q]:,}" if p != q else "-" for q in parts)] for p in parts],
        )
        lines += ["", pairs]
    return "\n".join(lines)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def _balance(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    for kind in kinds:
        if kind not in BALANCES or kinds.count(kind) > 1:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of {', '.join(BALANCES)}, each at most once")
    return kinds
