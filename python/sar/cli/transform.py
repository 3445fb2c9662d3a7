"""``sar transform``: adds columns to the nodes of a graph directory that are computed of its edges."""

from __future__ import annotations

import argparse
from typing import Any

from .output import Failure, size_argument, stage

_DESCRIPTION = """\
Adds columns to the nodes of a graph directory, as `sar ingest` makes them: float32 features that are computed of the
edges of the whole graph. `sar partition` takes them along. Edges are read from their files in blocks, again for each
product with the adjacency matrix; memory is for rows of nodes.
"""

_EPILOG = """\
columns:
  random-walk-pe=N    probabilities that a random walk is where it began after 1 .. N steps (PyG's AddRandomWalkPE)
  laplacian-pe=N      N eigenvectors of the normalized Laplacian matrix (PyG's AddLaplacianEigenvectorPE, without random
                      signs); of undirected graphs
  pagerank            PageRank, with probability 0.15 of beginning anew
  degree-profile      degree, and minimum, maximum, mean and standard deviation of those of neighbours (PyG's
                      LocalDegreeProfile)

A feature is called as the column, with _ for -. Time of random-walk-pe=N: N / 2 products with as many columns as there
are nodes, of a directed graph N; of laplacian-pe: some hundred products with N + 1 columns.

examples:
  sar transform graph --add random-walk-pe=16,laplacian-pe=8,pagerank,degree-profile
  sar transform graph --add laplacian-pe=8 --weight weight --out graph-pe --memory 8GiB
"""


def add(commands: Any) -> None:
    p = commands.add_parser(
        "transform",
        help="add columns to the nodes of a graph, computed of its edges",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("graph", metavar="DIR", help="the directory of a graph")
    p.add_argument("--add", required=True, metavar="COLUMNS", help="columns to add, separated by commas")
    p.add_argument("--out", "-o", metavar="DIR", help="write a copy with the columns there (default: into DIR itself)")
    p.add_argument("--edges", metavar="TYPE", help="type of the edges, where there are several")
    p.add_argument("--weight", metavar="FEATURE", help="feature of the edges that is their weight (default: 1 each)")
    p.add_argument("--prefix", metavar="TEXT", default="", help="what names of new features begin with")
    p.add_argument(
        "--memory",
        type=size_argument,
        default=4 << 30,
        metavar="SIZE",
        help="memory for rows of nodes and blocks of edges (default: 4GiB)",
    )
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar.transforms.columns import add_columns, parsed

    try:
        wanted = parsed(arguments.add, arguments.prefix)
    except ValueError as error:
        raise Failure(f"--add: {error}", 2) from None
    try:
        graph = add_columns(
            arguments.graph,
            wanted,
            arguments.memory,
            out=arguments.out,
            edge_type=arguments.edges,
            weight=arguments.weight,
            stages=stage,
        )
    except RuntimeError as error:
        raise Failure(str(error)) from None
    print(f"wrote {', '.join(one.name for one in wanted)} into {graph.path}")
    return 0
