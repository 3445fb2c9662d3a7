"""``sar convert``: writes the parts of a graph in another format."""

from __future__ import annotations

import argparse
import os
import shutil
from typing import Any

from .output import Failure, size_argument, stage


def add(commands: Any) -> None:
    p = commands.add_parser(
        "convert",
        help="write a partition directory in another format",
        description="Writes the parts of a graph in SAR's format or DGL's: the same nodes and edges in each part, in "
        "the same order, with their features and original ids. It takes 16 bytes for each edge of the largest part.",
    )
    p.add_argument("json", metavar="DIR/NAME.json", help="the description of the parts, or the directory it lies in")
    p.add_argument("--to", choices=("sar", "dgl"), required=True, dest="format", help="the format to write")
    p.add_argument("--out", "-o", required=True, metavar="DIR", help="directory to write to; made if missing")
    p.add_argument(
        "--memory", type=size_argument, default=0, metavar="SIZE", help="memory for the edges (default: 4GiB)"
    )
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar.data.directory import description_of
    from sar.partitioning.dataset import Dataset, partition_info
    from sar.partitioning.parts import PartsOptions, write_parts

    path = description_of(arguments.json)
    if not path.endswith(".json"):
        raise Failure(f"{path} is not the description of a partitioned graph, a .json file", 2)
    name = os.path.splitext(os.path.basename(path))[0]
    if os.path.exists(arguments.out) and os.path.samefile(arguments.out, os.path.dirname(path) or "."):
        raise Failure("--out is the directory of the parts: give another one", 2)
    first = partition_info(path, 0)
    parts = first["num_parts"]
    with Dataset(path) as dataset:
        assignment = dataset.assign("stored", parts, 0)
        with stage(f"writing {parts} parts to {arguments.out}") as step:
            options = PartsOptions(name, "converted", arguments.format, arguments.memory)
            write_parts(dataset, assignment, parts, arguments.out, options, step.progress)
    for part in range(parts):  # DGL's format has no place for the users' ids, but its directory has
        for file in (partition_info(path, part)["ids"] or {}).values():
            shutil.copy(file, os.path.join(arguments.out, f"part{part}"))
    print(f"wrote {os.path.join(arguments.out, name + '.json')}")
    return 0
