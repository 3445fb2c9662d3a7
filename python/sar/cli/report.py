"""``sar report``: a page about a run."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from .output import Failure


def add(commands: Any) -> None:
    p = commands.add_parser(
        "report",
        help="make a page about a run",
        description="Makes one HTML page of the logs that sar.RunLog wrote: loss and accuracy, memory by purpose, time "
        "by phase, bytes over each link, settings and versions. The page needs nothing beside itself.",
    )
    p.add_argument("folder", metavar="RUN", help="the folder with rank00000.jsonl")
    p.add_argument("-o", "--output", metavar="FILE", required=True, help="the page, such as report.html")
    p.add_argument(
        "--plan",
        metavar="FILE",
        help="what `sar plan --json-output` printed, to compare memory with (default: RUN/plan.json, if any)",
    )
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar.data.directory import write_text
    from sar.report.events import read
    from sar.report.page import page

    found = read(arguments.folder)
    path = arguments.plan or os.path.join(arguments.folder, "plan.json")
    plan = _plan(path) if arguments.plan or os.path.exists(path) else []
    name = os.path.basename(os.path.abspath(arguments.folder))
    write_text(arguments.output, page(found, name, plan))
    print(f"{len(found.workers)} of {found.world} workers, {len(found.workers[0].epochs)} epochs: {arguments.output}")
    return 0


def _plan(path: str) -> list[Any]:
    from sar.data.directory import open_regular
    from sar.profiling.plan import Estimate

    try:
        with open_regular(path) as file:
            rows = json.load(file)
        known = Estimate._fields
        return [Estimate(**{name: int(row[name]) for name in known}) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Failure(f"{path} is not what `sar plan --json-output` prints ({type(error).__name__}: {error})") from None
