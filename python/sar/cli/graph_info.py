"""What ``sar info`` prints of the directory of a graph."""

from __future__ import annotations

import json
import os
from typing import Any

from sar.units import size

from .output import stage, table

_BAR = 40  # characters of the longest bar of a histogram


def run(path: str, *, as_json: bool) -> int:
    """Describes a graph directory, and gives the exit code."""
    from sar.data import graph_statistics
    from sar.data.graph_directory import GraphDirectory

    graph = GraphDirectory(path)
    with stage(f"reading the edges of {path}") as step:
        statistics = graph_statistics.describe(graph, lambda done, total: step.progress(done, total, "edges"))
    if as_json:
        found = graph_statistics.as_dict(statistics, graph)
        print(json.dumps({"description": graph.description, "statistics": found}))
    else:
        print(_render(graph, statistics))
    return 0


def _ids(kind: Any) -> str:
    if kind.ids is None:
        return "0 to N - 1"
    return "text" if kind.ids.type == "VARCHAR" else "integers"


def _render(graph: Any, statistics: Any) -> str:
    nodes = sum(one.count for one in graph.node_types.values())
    edges = sum(one.count for one in graph.edge_types)
    lines = [f"{graph.name}: {nodes:,} nodes, {edges:,} edges", ""]
    rows = [
        [name, f"{one.count:,}", _ids(one), f"{statistics.isolated[name]:,}"] for name, one in graph.node_types.items()
    ]
    lines += [table(["node type", "nodes", "ids", "isolated"], rows), ""]
    names = [":".join(one.type) for one in graph.edge_types]
    found = statistics.edges
    say = {True: "yes", False: "no", None: "-"}
    rows = [
        [name, f"{one.count:,}", say[s.symmetric], f"{s.self_loops:,}", f"{s.duplicates:,}"]
        for name, one, s in zip(names, graph.edge_types, found)
    ]
    lines += [table(["edge type", "edges", "symmetric", "self loops", "duplicates"], rows), ""]
    degrees = [
        [f"{name} {way}", f"{d.pop('mean'):.1f}", *(f"{value:,}" for value in d.values())]
        for name, s in zip(names, found)
        for way, d in (("in", s.in_degrees.describe()), ("out", s.out_degrees.describe()))
        if d
    ]
    quantiles = [key for key in found[0].in_degrees.describe() if key != "mean"] if found else []
    lines += [table(["degrees", "mean", *quantiles], degrees)]
    features = [
        [owner, name, a.dtype, "x".join(map(str, a.shape)), size(os.path.getsize(graph.path / a.file)), a.file]
        for owner, one in [*graph.node_types.items(), *zip(names, graph.edge_types)]
        for name, a in one.features.items()
    ]
    if features:
        lines += ["", table(["features of", "name", "dtype", "shape", "on disk", "file"], features, left=3)]
    for name, s in zip(names, found):
        bars = s.in_degrees.histogram()
        most = max((count for _, count in bars), default=1)
        drawn = [[degree, f"{count:,}", "#" * -(-_BAR * count // most)] for degree, count in bars]
        lines += ["", _histogram(name, drawn)]
    return "\n".join(lines)


def _histogram(name: str, bars: list[list[str]]) -> str:
    left, right = max([9, *(len(b[0]) for b in bars)]), max([5, *(len(b[1]) for b in bars)])
    head = f"{'in-degree'.rjust(left)}  {'nodes'.rjust(right)}  {name}"
    return "\n".join([head, *(f"{d.rjust(left)}  {n.rjust(right)}  {bar}" for d, n, bar in bars)])
