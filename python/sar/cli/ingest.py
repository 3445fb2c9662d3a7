"""``sar ingest``: makes the directory of a graph out of tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .output import Failure, size_argument, stage

_DESCRIPTION = """\
Makes the directory of a graph, which `sar partition` cuts and `sar info` describes: graph.json, the edges sorted by
destination, features as .npy files, and the users' ids in Parquet. Works in bounded memory, with DuckDB.

A graph of one type of node and of edge is given by options: --edges and, where there is one, --nodes. SOURCE is for all
other graphs: a schema file in YAML, which names the tables of each type; an .npz file or a directory of .npy files with
edge_index, as `sar partition` reads them; a folder of OGB's raw files; or the metadata.json of DGL's chunked format.

Tables are Parquet, CSV or TSV files (text also as .gz), by name, pattern or directory. Ids may be integers or text.
Without --nodes, the nodes are the ids in the edges, in ascending order. With --nodes but no --id, ids are row numbers,
from 0.
"""

_EPILOG = """\
Edges that are added or left out: the reverse of an edge (--symmetrize) has the weight and the features of its edge. Of
several edges with the same ends (--deduplicate) the first in the file stays, with its weight and its features. An added
self loop (--self-loops) has weight 1, and features of 1.

Labels: integers become classes as they are, and -1 and an empty label mean that there is none. Text becomes class
numbers in alphabetical order, which graph.json keeps. Other numbers are kept as float32, for regression.

examples:
  sar ingest --edges 'knows/*.csv' --source a --target b --nodes people.csv --id name --features age,visits \\
             --label group --symmetrize --deduplicate --out graph
  sar ingest schema.yaml --memory 16GiB --scratch /fast/disk --out graph
"""


def add(commands: Any) -> None:
    p = commands.add_parser(
        "ingest",
        help="make a graph out of tables",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("schema", metavar="SOURCE", nargs="?", help="a schema file (YAML), arrays, OGB's or DGL's files")
    p.add_argument("--out", "-o", required=True, metavar="DIR", help="directory to make; must not exist, or be empty")
    p.add_argument("--name", metavar="NAME", help="name of the graph (default: that of the directory)")

    edges = p.add_argument_group("tables of a graph of one type")
    edges.add_argument("--edges", nargs="+", metavar="FILES", help="tables of edges")
    edges.add_argument("--source", metavar="COLUMN", help="column of the ids of sources (default: source, src, …)")
    edges.add_argument("--target", metavar="COLUMN", help="column of the ids of destinations (default: target, dst, …)")
    edges.add_argument("--weight", metavar="COLUMN", help="column of weights of edges")
    edges.add_argument(
        "--edge-features", metavar="COLUMNS", action="append", help="features of edges; takes what --features takes"
    )
    edges.add_argument("--nodes", nargs="+", metavar="FILES", help="tables of nodes, one row for each")
    edges.add_argument("--id", metavar="COLUMN", help="column of the ids of nodes (default: ids are row numbers)")
    edges.add_argument(
        "--features",
        metavar="[NAME=]COLUMNS",
        action="append",
        help="columns of numbers, or of lists of numbers, separated by commas, or a pattern of their names such as "
        "'word*': a float32 matrix NAME (default: features); or a .npy file with a row for each node. May be given "
        "several times",
    )
    edges.add_argument("--columns", metavar="COLUMNS", help="columns that become features of their own name and dtype")
    edges.add_argument("--label", metavar="COLUMN", help="column of labels; several, separated by commas: a matrix")
    edges.add_argument("--unlabelled", metavar="VALUE", help="a label that means that there is none, such as nan")
    edges.add_argument("--split", metavar="COLUMN", help="column that says train, val or test: becomes three masks")
    edges.add_argument("--num-nodes", type=int, metavar="N", help="number of nodes; ids are 0 to N - 1")
    edges.add_argument(
        "--id-type", choices=("integer", "text"), help="what ids are (default: what the first rows look like)"
    )
    edges.add_argument("--no-header", action="store_true", help="the first line of text files is data, too")
    edges.add_argument("--delimiter", metavar="CHAR", help="between fields of text (default: see the first line)")

    change = p.add_argument_group("what is done with edges")
    change.add_argument("--symmetrize", action="store_true", help="add the reverse of every edge")
    change.add_argument("--deduplicate", action="store_true", help="keep one of several edges with the same ends")
    change.add_argument("--self-loops", action="store_true", help="give every node that lacks one an edge to itself")
    change.add_argument("--skip-bad-rows", action="store_true", help="leave out rows that cannot be taken")

    how = p.add_argument_group("resources")
    how.add_argument(
        "--memory", type=size_argument, default="4GiB", metavar="SIZE", help="to use, beside disk (default: 4GiB)"
    )
    how.add_argument("--scratch", metavar="DIR", help="directory for what does not fit memory (default: beside --out)")
    how.add_argument("--threads", type=int, metavar="T", help="threads (default: one for each core)")
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar.data.ingest import ingest

    source = arguments.schema if arguments.schema is not None else _schema(arguments)
    if arguments.schema is not None and arguments.edges:
        raise Failure("give either SOURCE or --edges", 2)
    graph = ingest(
        source,
        arguments.out,
        symmetrize=arguments.symmetrize,
        deduplicate=arguments.deduplicate,
        self_loops=arguments.self_loops,
        skip_bad_rows=arguments.skip_bad_rows,
        memory=arguments.memory,
        scratch=arguments.scratch,
        threads=arguments.threads,
        name=arguments.name,
        stages=stage,
    )
    nodes = sum(t.count for t in graph.node_types.values())
    edges = sum(t.count for t in graph.edge_types)
    print(f"wrote {Path(arguments.out) / 'graph.json'}: {nodes:,} nodes, {edges:,} edges")
    return 0


def _schema(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of a graph of one type as the content of a schema."""
    if not arguments.edges:
        raise Failure("give --edges, or the SOURCE of a graph", 2)
    text = {"header": not arguments.no_header, **_given(delimiter=arguments.delimiter)}
    edges = {
        "files": arguments.edges,
        **text,
        **_given(source=arguments.source, target=arguments.target, weight=arguments.weight),
        **_given(features=_features(arguments.edge_features)),
    }
    nodes = {
        **_given(files=arguments.nodes, id=arguments.id, id_type=arguments.id_type, count=arguments.num_nodes),
        **_given(features=_features(arguments.features), columns=_list(arguments.columns)),
        **_given(label=_list(arguments.label), unlabelled=arguments.unlabelled, split=arguments.split),
    }
    if arguments.nodes:
        nodes.update(text)
    return {"nodes": {"_N": nodes}, "edges": {"_N:_E:_N": edges}}


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _list(text: Any) -> Any:
    return None if text is None else [name.strip() for name in text.split(",")]


def _features(listed: Any) -> Any:
    """``["a,b", "more=c"]`` as ``{"features": ["a", "b"], "more": ["c"]}``."""
    if listed is None:
        return None
    found: dict[str, Any] = {}
    for text in listed:
        name, equals, columns = text.rpartition("=")
        name = name if equals else "features"
        if name in found:
            raise Failure(f"--features: {name!r} is given twice; the columns of a matrix are separated by commas", 2)
        found[name] = columns if columns.endswith(".npy") else _list(columns)
    return found
