"""``sar plan``: predicts memory and traffic of a run before it is started."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sar.config import Config
from sar.data.directory import description_of
from sar.profiling.plan import estimate_memory
from sar.profiling.plan.layers import HELP

from .output import add_outside_paths, size, table


def add(commands: Any) -> None:
    p = commands.add_parser(
        "plan",
        help="predict memory and traffic of a run",
        description="Predicts the peak memory of each worker and what it sends per epoch, from a partition directory, "
        "or from the size of a graph that is not partitioned yet.",
        epilog=f"layers: {HELP}",
    )
    p.add_argument(
        "json",
        metavar="DIR/NAME.json",
        nargs="?",
        help="the description that `sar partition` or DGL wrote, or the directory it lies in",
    )
    p.add_argument(
        "--layers", required=True, metavar="L,L,...", help="the model, for instance sage:256,bn,relu,sage:47"
    )
    p.add_argument("--in-features", type=int, metavar="N", help="width of the input (default: of the widest feature)")
    p.add_argument("--nodes", type=int, default=0, metavar="N", help="nodes, without a partition directory")
    p.add_argument("--edges", type=int, default=0, metavar="N", help="edges, without a partition directory")
    p.add_argument("--parts", type=int, default=1, metavar="P", help="workers, without a partition directory")
    p.add_argument(
        "--edge-cut", type=float, default=0.1, metavar="SHARE", help="share of edges between parts (default 0.1)"
    )
    p.add_argument("--float64", action="store_true", help="train in double precision")
    p.add_argument("--window", type=int, metavar="MIB", help="Config.window_bytes in MiB (default: the engine's)")
    p.add_argument("--optimizer", choices=("adam", "sgd", "none"), default="adam")
    p.add_argument("--json-output", action="store_true", help="print JSON in place of a table")
    add_outside_paths(p)
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    Config.allow_outside_paths = arguments.allow_outside_paths
    estimates = estimate_memory(
        None if arguments.json is None else description_of(arguments.json),
        arguments.layers.split(","),
        in_features=arguments.in_features,
        num_nodes=arguments.nodes,
        num_edges=arguments.edges,
        parts=arguments.parts,
        edge_cut=arguments.edge_cut,
        itemsize=8 if arguments.float64 else 4,
        window_bytes=None if arguments.window is None else arguments.window << 20,
        optimizer=arguments.optimizer,
    )
    if arguments.json_output:
        print(json.dumps([estimate._asdict() for estimate in estimates]))
        return 0
    rows = [[e.rank, *(size(value) for value in e[1:])] for e in estimates]
    print(
        table(
            [
                "rank",
                "structure",
                "features",
                "window",
                "runtime",
                "parameters",
                "activations",
                "scratch",
                "peak",
                "sent an epoch",
            ],
            rows,
        )
    )
    print(
        f"The heaviest worker takes {size(max(e.peak for e in estimates))} beside the interpreter and its libraries, "
        f"all {len(estimates)} together {size(sum(e.peak for e in estimates))}. For the allocator policies pool and "
        "compact."
    )
    return 0
