"""``sar info``: shows what a partition directory holds."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from .output import Failure, size, table


def add(commands: Any) -> None:
    p = commands.add_parser(
        "info",
        help="show what a partition directory holds",
        description="Shows the types, parts, features and sizes of a graph in DGL's partition format. "
        "Opens every part, so damaged files show.",
    )
    p.add_argument(
        "json",
        metavar="DIR/NAME.json",
        help="the description that `sar partition` or DGL wrote, or the directory it lies in",
    )
    p.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object in place of tables")
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from .._directory import description_of
    from .dataset import partition_info

    path = description_of(arguments.json)
    try:
        with open(path, encoding="utf-8") as file:
            description = json.load(file)
        count = int(description["num_parts"])
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(
            f"{path} is not the description of a partitioned graph ({type(error).__name__}: {error})"
        ) from None
    parts = [partition_info(path, part) for part in range(count)]
    if arguments.as_json:
        print(json.dumps({"description": description, "parts": parts}))
        return 0
    print(render(path, description, parts))
    return 0


def render(path: str, description: dict[str, Any], parts: list[dict[str, Any]]) -> str:
    """The tables for people."""
    first = parts[0]
    lines = [
        f"{description.get('graph_name', '?')}: {description['num_nodes']:,} nodes, "
        f"{description['num_edges']:,} edges, "
        f"{len(parts)} parts made by {description.get('part_method', 'unknown means')}",
        "",
    ]
    ranges = first["node_ranges"]
    lines.append(
        table(
            ["node type", *(f"part {i}" for i in range(len(parts)))],
            [[name, *(f"{end - begin:,}" for begin, end in ranges[name])] for name in first["node_types"]],
        )
    )
    edges = {name: first["edge_ranges"][name] for name in (":".join(triple) for triple in first["edge_types"])}
    lines += [
        "",
        table(
            ["edge type", *(f"part {i}" for i in range(len(parts)))],
            [[name, *(f"{end - begin:,}" for begin, end in span)] for name, span in edges.items()],
        ),
    ]
    lines += [
        "",
        table(
            ["part", "own nodes", "nodes read of others", "edges in file", "on disk"],
            [
                [
                    p["part"],
                    f"{p['num_inner_nodes']:,}",
                    f"{p['num_local_nodes'] - p['num_inner_nodes']:,}",
                    f"{p['num_local_edges']:,}",
                    size(_bytes(path, description, p["part"])),
                ]
                for p in parts
            ],
        ),
    ]
    for title, key in (("node feature", "node_features"), ("edge feature", "edge_features")):
        if first[key]:
            lines += [
                "",
                table(
                    [title, "dtype", "shape in part 0"],
                    [[f["name"], f["dtype"], "x".join(str(n) for n in f["shape"])] for f in first[key]],
                    left=2,
                ),
            ]
    return "\n".join(lines)


def _bytes(path: str, description: dict[str, Any], part: int) -> int:
    files = description[f"part-{part}"].values()
    folder = os.path.dirname(path)
    return sum(os.path.getsize(os.path.join(folder, f)) for f in files if os.path.exists(os.path.join(folder, f)))
