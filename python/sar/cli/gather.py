"""``sar gather``: joins the results that workers wrote, one file each."""

from __future__ import annotations

import argparse
from typing import Any

from .output import stage


def add(commands: Any) -> None:
    p = commands.add_parser(
        "gather",
        help="join the results that workers wrote",
        description="Joins the Parquet files that sar.write_rows or `sar infer` wrote, one a worker, into one file in "
        "the order of ids. Memory stays the same however many rows there are.",
    )
    p.add_argument("folder", metavar="NAME.parquet", help="the directory with part-00000-of-N.parquet")
    p.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="NAME.parquet, or NAME.npy where ids are numbers from 0 and there is one column beside them",
    )
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar.results.gather import gather

    with stage(f"joining {arguments.folder}"):
        found = gather(arguments.folder, arguments.output)
    print(f"{found.parts} files, {found.rows:,} rows: {arguments.output}")
    return 0
