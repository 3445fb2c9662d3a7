"""``sar plan``: predicts memory, traffic and time of a run before it is started."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from sar.config import Config
from sar.data.directory import description_of
from sar.profiling.plan import Estimate, estimate_memory
from sar.profiling.plan.advice import changes, heaviest
from sar.profiling.plan.estimate import Rates, epoch_seconds
from sar.profiling.plan.layers import HELP
from sar.units import parse_size, size

from .output import Failure, add_outside_paths, size_argument, table

_PRODUCTS_PER_SUM = 8.0
"""Multiplications of a dense product in the time of one addition along an edge, where only the latter is given."""


def add(commands: Any) -> None:
    p = commands.add_parser(
        "plan",
        help="predict memory, traffic and time of a run",
        description="Predicts the peak memory of each worker, what it sends and how long it takes per epoch: from a "
        "partition, from a graph that `sar ingest` wrote, or from sizes alone. With --memory it says what to change.",
        epilog=f"layers: {HELP}",
    )
    p.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        help="the description of a partition, or a directory with it or with graph.json; else --nodes and --edges",
    )
    p.add_argument(
        "--layers", required=True, metavar="L,L,...", help="the model, for instance sage:256,bn,relu,sage:47"
    )
    p.add_argument(
        "--features",
        "--in-features",
        dest="in_features",
        type=int,
        metavar="N",
        help="width of the input (default: of the widest feature)",
    )
    p.add_argument("--nodes", type=int, default=0, metavar="N", help="nodes, without a path")
    p.add_argument("--edges", type=int, default=0, metavar="N", help="edges, without a path")
    p.add_argument(
        "--parts",
        type=int,
        metavar="P",
        help="workers (default: 1, or the parts of the partition; another number is planned as an even cut)",
    )
    p.add_argument(
        "--edge-cut", type=float, default=0.1, metavar="SHARE", help="share of edges between parts (default 0.1)"
    )
    precision = p.add_mutually_exclusive_group()
    precision.add_argument("--float64", action="store_true", help="train in double precision")
    precision.add_argument(
        "--autocast", action="store_true", help="train under torch.autocast in bfloat16, on features in bfloat16"
    )
    p.add_argument("--window", type=int, metavar="MIB", help="Config.window_bytes in MiB (default: the engine's)")
    p.add_argument("--mapped", action="store_true", help='features stay on disk: Config.features = "mapped"')
    p.add_argument("--optimizer", choices=("adam", "sgd", "none"), default="adam")
    p.add_argument(
        "--memory",
        type=size_argument,
        metavar="SIZE",
        help="what a worker may take, such as 16GiB: says what to change",
    )
    p.add_argument(
        "--bandwidth", type=rate_of, metavar="RATE", help="of a worker's network, such as 10Gbit or 1GB, a second"
    )
    p.add_argument(
        "--kernel-rate",
        metavar="G",
        help="numbers that a worker adds along edges, in thousands of millions a second; `measure`: find out on this "
        "machine, which takes some seconds (default: measure, where --bandwidth is given). A number counts products of "
        "matrices as 8 times as fast",
    )
    p.add_argument("--json-output", action="store_true", help="print JSON in place of a table")
    add_outside_paths(p)
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    Config.allow_outside_paths = arguments.allow_outside_paths
    limit, bandwidth = arguments.memory, arguments.bandwidth
    again = _estimator(arguments)
    estimates = again()
    rates = _rates(arguments)
    seconds = [epoch_seconds(e, rates, bandwidth) for e in estimates] if rates else None
    if arguments.json_output:
        more = [{"epoch_seconds": s} for s in seconds] if seconds else [{} for _ in estimates]
        print(json.dumps([{**e._asdict(), **m} for e, m in zip(estimates, more)]))
        return 0
    print(_table(estimates, seconds))
    print(
        f"The heaviest worker takes {size(heaviest(estimates))} beside the interpreter and its libraries, "
        f"all {len(estimates)} together {size(sum(e.peak for e in estimates))}. For the allocator policies pool and "
        "compact."
    )
    if len(estimates) > 1:
        most = max(e.sent_per_epoch for e in estimates)
        print(f"The worker that sends most sends {size(most)} an epoch: by that cuts are compared, not by edges cut.")
    if rates:
        print(_speed(rates, bandwidth))
    if limit is not None:
        print(_advice(again, arguments, heaviest(estimates), limit))
    return 0


def _estimator(arguments: argparse.Namespace) -> Any:
    """Estimates of the command line, with arguments changed where some are given."""
    given = {
        "in_features": arguments.in_features,
        "parts": arguments.parts,
        "edge_cut": arguments.edge_cut,
        "itemsize": 8 if arguments.float64 else 4,
        "autocast": arguments.autocast,
        "window_bytes": None if arguments.window is None else arguments.window << 20,
        "optimizer": arguments.optimizer,
        "features": "mapped" if arguments.mapped else "memory",
        "layers": arguments.layers.split(","),
    }
    if arguments.path is None:
        return partial(estimate_memory, None, num_nodes=arguments.nodes, num_edges=arguments.edges, **given)
    if arguments.nodes or arguments.edges:
        raise Failure("--nodes and --edges are for a graph without files: leave them out, or the path", 2)
    from sar.data.graph_directory import GraphDirectory, is_graph_directory

    if not is_graph_directory(arguments.path):
        return partial(estimate_memory, description_of(arguments.path), **given)
    graph = GraphDirectory(arguments.path)
    kinds = graph.node_types.values()
    widths = [f.shape[1] for kind in kinds for f in kind.features.values() if len(f.shape) == 2]
    given["in_features"] = arguments.in_features or max(widths, default=None)
    nodes, edges = sum(kind.count for kind in kinds), sum(relation.count for relation in graph.edge_types)
    return partial(estimate_memory, None, num_nodes=nodes, num_edges=edges, **given)


def _table(estimates: Sequence[Estimate], seconds: Sequence[float] | None) -> str:
    header = ["rank", "structure", "features", "window", "runtime", "parameters", "activations", "scratch", "peak"]
    header += ["sent an epoch"] + (["epoch"] if seconds else [])
    shown = list(zip(estimates, seconds or [0.0] * len(estimates)))
    same = all(e[1:] == estimates[0][1:] for e in estimates)
    rows = []
    for estimate, took in shown[:1] if same else shown:
        name = f"each of {len(estimates)}" if same and len(estimates) > 1 else str(estimate.rank)
        cells = [size(value) for value in estimate[1:10]]
        rows.append([name, *cells, *([f"{took:.3g} s"] if seconds else [])])
    return table(header, rows)


def _rates(arguments: argparse.Namespace) -> Rates | None:
    if arguments.kernel_rate is None and arguments.bandwidth is None:
        return None
    if arguments.kernel_rate in (None, "measure"):
        from sar.profiling.plan.measure import measure

        return measure()
    try:
        rate = float(arguments.kernel_rate) * 1e9
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise Failure(f"--kernel-rate {arguments.kernel_rate}: give a number above 0, or `measure`", 2)
    return Rates(rate, _PRODUCTS_PER_SUM * rate)


def _speed(rates: Rates, bandwidth: float | None) -> str:
    wire = "transfers left out (give --bandwidth)" if bandwidth is None else f"{bandwidth / 1e9:.3g} GB/s of network"
    return (
        f"Epoch: {rates.aggregated / 1e9:.3g} thousand million numbers a second along edges, "
        f"{rates.multiplied / 1e9:.3g} in products, {wire}. Transfers run while rows are added up; the longer counts."
    )


def _advice(again: Any, arguments: argparse.Namespace, peak: int, limit: int) -> str:
    if peak <= limit:
        return f"That fits into {size(limit)}."
    found = changes(again, arguments.layers.split(","), arguments.optimizer, limit)
    lines = [f"That does not fit into {size(limit)}. Each of these alone:"]
    lines += [f"  {size(c.peak):>10}  {'fits' if c.peak <= limit else '    '}  {c.text}" for c in found]
    if not found or found[0].peak > limit:
        lines.append("None of them is enough: take several, or narrower layers.")
    return "\n".join(lines)


def rate_of(text: str) -> float:
    """Bytes a second: 1GB and 800MiB/s, or in bits: 10Gbit, 10Gbps. The G of bits is 10**9.

    :raises argparse.ArgumentTypeError: something else, or 0
    """
    word = re.sub(r"(/s|ps)$", "", text.strip())
    bits = re.fullmatch(r"(.*?)(bits?|b)", word)
    try:
        rate = parse_size(bits[1] + "B") / 8 if bits else float(parse_size(word))
    except ValueError:
        rate = 0.0
    if rate <= 0:
        raise argparse.ArgumentTypeError(f"expected a rate above 0, such as 10Gbit or 1GB, found {text!r}")
    return rate
