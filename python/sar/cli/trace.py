"""``sar trace``: joins the timelines of several workers."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sar.data.directory import open_regular

from .output import Failure


def add(commands: Any) -> None:
    p = commands.add_parser(
        "trace",
        help="join the timelines that workers wrote",
        description="Joins the files that sar.trace wrote, one a worker, into one for https://ui.perfetto.dev.",
    )
    p.add_argument("files", metavar="NAME.rank0.json", nargs="+", help="timelines of workers")
    p.add_argument("-o", "--output", metavar="FILE", required=True, help="the joined timeline")
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    events: list[Any] = []
    for path in arguments.files:
        try:
            with open_regular(path) as file:
                events += json.load(file)["traceEvents"]
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise Failure(f"{path} is not a timeline of sar.trace ({type(error).__name__}: {error})") from None
    begin = min((event["ts"] for event in events if "ts" in event), default=0.0)
    for event in events:
        if "ts" in event:
            event["ts"] -= begin
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
    print(f"{len(arguments.files)} workers, {len(events)} events: {arguments.output}")
    return 0
