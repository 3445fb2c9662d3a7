"""``sar convert``: writes the parts of a graph in another format."""

from __future__ import annotations

import argparse
import os
from typing import Any

from sar.units import size

from .output import Failure, size_argument, stage
from .partition import refuse_to_overwrite


def add(commands: Any) -> None:
    p = commands.add_parser(
        "convert",
        help="write a partition directory in another format",
        description="Writes the parts of a graph in SAR's format or DGL's: the same nodes and edges in each part, in "
        "the same order, with their features and original ids.",
    )
    p.add_argument("json", metavar="DIR/NAME.json", help="the description of the parts, or the directory it lies in")
    p.add_argument("--to", choices=("sar", "dgl"), required=True, dest="format", help="the format to write")
    p.add_argument("--out", "-o", required=True, metavar="DIR", help="directory to write to; made if missing")
    p.add_argument("--memory", type=size_argument, default=0, metavar="SIZE", help="memory it may take (default: 4GiB)")
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar._engine.abi import part_info
    from sar.data.directory import description_of, id_files
    from sar.partitioning.dataset import Dataset
    from sar.partitioning.parts import PartsOptions, memory_to_write, write_parts

    path = description_of(arguments.json)
    if not path.endswith(".json"):
        raise Failure(f"{path} is not the description of a partitioned graph, a .json file", 2)
    name = os.path.splitext(os.path.basename(path))[0]
    if os.path.exists(arguments.out) and os.path.samefile(arguments.out, os.path.dirname(path) or "."):
        raise Failure("--out is the directory of the parts: give another one", 2)
    refuse_to_overwrite(arguments.out, name)
    parts = part_info(path, 0)["num_parts"]
    with Dataset(path) as dataset:
        least = dataset.least_memory(parts, arguments.format)
        memory = arguments.memory or memory_to_write(dataset, parts, arguments.format)
        if memory < least:
            raise Failure(f"writing {parts} parts takes {size(least)} of memory at least: give more with --memory")
        assignment = dataset.assign("stored", parts, 0)
        with stage(f"writing {parts} parts to {arguments.out}") as step:
            options = PartsOptions(name, "converted", arguments.format, memory)
            ids = [id_files(path, part, part_info(path, part)) for part in range(parts)]
            write_parts(dataset, assignment, parts, arguments.out, options, step.progress, ids)
    print(f"wrote {os.path.join(arguments.out, name + '.json')}")
    return 0
