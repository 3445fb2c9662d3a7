"""``sar info``: shows what the directory of a graph or of its parts holds."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from sar.autograd.fused import costs
from sar.autograd.fused.costs import Cover
from sar.errors import FormatError
from sar.profiling.plan.estimate import cover_of, joined
from sar.units import size

from . import graph_info
from .output import Failure, add_outside_paths, stage, table


def add(commands: Any) -> None:
    p = commands.add_parser(
        "info",
        help="show what the directory of a graph or of its parts holds",
        description="Shows the types, parts, features and sizes of a partitioned graph. Opens every part, so files "
        "that are not what they should be show. Of a directory that `sar ingest` made: counts, features, degrees, "
        "isolated nodes, duplicate edges, symmetry. Exit code 1 where a file is damaged.",
    )
    p.add_argument(
        "json",
        metavar="DIR/NAME.json",
        help="the description that `sar partition`, DGL or `sar ingest` wrote, or the directory it lies in",
    )
    p.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object in place of tables")
    p.add_argument(
        "--verify",
        action="store_true",
        help="read every byte of every file, hold it against the checksums that SAR wrote, and list what "
        "is damaged; without checksums (DGL writes none), hold the files against each other",
    )
    add_outside_paths(p)
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar._engine.abi import part_info
    from sar.config import Config
    from sar.data.directory import description_of
    from sar.data.graph_directory import is_graph_directory

    if is_graph_directory(arguments.json):
        if arguments.verify:
            return verify(arguments.json, arguments.as_json)
        return graph_info.run(arguments.json, as_json=arguments.as_json)
    Config.allow_outside_paths = arguments.allow_outside_paths
    path = description_of(arguments.json)
    if arguments.verify:
        return verify(path, arguments.as_json)
    description, count = read_description(path)
    parts = [part_info(path, part) for part in range(count)]
    if arguments.as_json:
        print(json.dumps({"description": description, "parts": parts}))
        return 0
    print(render(path, description, parts))
    return 0


def read_description(path: str) -> tuple[dict[str, Any], int]:
    """The description of a partitioned graph, and its number of parts."""
    from sar.data.directory import open_regular

    try:
        with open_regular(path) as file:
            description = json.load(file)
        return description, int(description["num_parts"])
    except FormatError:
        raise
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(
            f"{path} is not the description of a partitioned graph ({type(error).__name__}: {error})"
        ) from None


def _reports(path: str) -> list[dict[str, Any]]:
    """What is found of each file of a graph directory, or of all parts."""
    from sar._engine import abi
    from sar.data import graph_directory

    if graph_directory.is_graph_directory(path):
        return graph_directory.verify(os.path.dirname(path) or "." if os.path.isfile(path) else path)
    files = abi.partition_verify(path, 0)
    if not files[0]["damage"]:  # else nobody knows which parts there are
        for part in range(1, read_description(path)[1]):
            files += abi.partition_verify(path, part)[1:]  # the first is of the description each time
    return files


def verify(path: str, as_json: bool) -> int:
    """Reads all files of a graph directory or of all parts, prints what was found of each, and gives the exit code."""
    with stage(f"verifying {path}") as step:
        begin = time.perf_counter()
        files = _reports(path)
        total = sum(file["bytes"] for file in files)
        step.note = f"{size(total)}, {total / (time.perf_counter() - begin) / 1e9:.1f} GB/s"
    damage = [text for file in files for text in file["damage"]]
    if as_json:
        print(json.dumps({"files": files}))
        return 1 if damage else 0
    folder = os.path.dirname(files[0]["file"]) or "."  # of the description
    rows = [
        [
            os.path.relpath(file["file"], folder),
            size(file["bytes"]),
            "yes" if file["checksums"] else "no",
            "damaged" if file["damage"] else "ok",
        ]
        for file in files
    ]
    print(table(["file", "on disk", "checksums", "state"], rows))
    if not damage and not all(file["checksums"] for file in files):
        print(
            "\nFiles without checksums were held against each other alone, so a changed value of a feature does not "
            "show. `sar ingest` and `sar partition` write checksums; DGL does not."
        )
    if damage:
        print("\n" + "\n".join(damage))
    return 1 if damage else 0


def render(path: str, description: dict[str, Any], parts: list[dict[str, Any]]) -> str:
    """The tables for people."""
    first, numbers = parts[0], [f"part {i}" for i in range(len(parts))]
    node_types, edge_types = first["node_types"], [":".join(triple) for triple in first["edge_types"]]
    sections = [
        f"{description.get('graph_name', '?')}: {description['num_nodes']:,} nodes, "
        f"{description['num_edges']:,} edges, "
        f"{len(parts)} parts made by {description.get('part_method', 'unknown means')}"
    ]
    for title, names, ranges in (("node", node_types, "node_ranges"), ("edge", edge_types, "edge_ranges")):
        rows = [[name, *(f"{end - begin:,}" for begin, end in first[ranges][name])] for name in names]
        sections.append(table([f"{title} type", *numbers], rows))
    rows = [
        [
            p["part"],
            f"{p['num_inner_nodes']:,}",
            f"{p['num_local_nodes'] - p['num_inner_nodes']:,}",
            _received(p["cover"]),
            f"{p['num_local_edges']:,}",
            size(_bytes(path, description, p["part"]) + p["bytes"] * ("format" in description)),
        ]
        for p in parts
    ]
    header = ["part", "own nodes", "nodes read of others", "rows + sums for a sum", "edges in file", "on disk"]
    sections.append(table(header, rows))
    cover = [p["cover"] for p in parts]
    known = all(cover)
    read = [
        c["rows"][1] + c["sums"][1] if known else p["num_local_nodes"] - p["num_inner_nodes"]
        for c, p in zip(cover, parts)
    ]
    sections.append(
        f"{sum(read):,} rows{' and sums' * known} travel for {'a sum' if known else 'an aggregation'}, most "
        f"{max(read):,}, which part {read.index(max(read))} receives: by that cuts are compared"
    )
    if (together := joined([cover_of(c) for c in cover])) is not None:
        sections.append(table(["bytes beside rows alone", "float32", "bfloat16"], _shares(together)))
    for title in ("node", "edge"):
        rows = [[f["name"], f["dtype"], "x".join(map(str, f["shape"]))] for f in first[f"{title}_features"] or ()]
        if rows:
            sections.append(table([f"{title} feature", "dtype", "shape in part 0"], rows, left=2))
    return "\n\n".join(sections)


def _shares(cover: Cover) -> list[list[str]]:
    """What the forward and backward passes of layers send of what they would if rows alone travelled."""
    layers = {
        "sum, mean": costs.gin(32, 32, True),
        "max, min": costs.sage_pool(32, 32, True),
        "GAT, 4 heads of 32": costs.gat(128, 4, 32, True),
        "GATv2, 4 heads of 32": costs.gatv2(128, 4, 32, True),
    }
    return [[name, *(f"{of.sent(n, cover) / of.sent(n):.2f}" for n in (4, 2))] for name, of in layers.items()]


def _received(cover: dict[str, Any] | None) -> str:
    """What a part receives for a sum over edges in float32: rows, and partial sums in place of the others."""
    return f"{cover['rows'][1]:,} + {cover['sums'][1]:,}" if cover else "-"


def _bytes(path: str, description: dict[str, Any], part: int) -> int:
    files = description[f"part-{part}"].values()
    folder = os.path.dirname(path)
    return sum(os.path.getsize(os.path.join(folder, f)) for f in files if os.path.exists(os.path.join(folder, f)))
