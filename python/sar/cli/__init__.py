"""The ``sar`` command: make a graph, partition a graph, look at partitions, start workers, examine an installation.

Every subcommand lives in a module of its own with two functions: ``add(subparsers)`` declares its arguments and
``run(arguments)`` does the work and returns the exit code.

Exit codes: 0 success, 1 failure, 2 wrong usage; ``sar launch`` ends with the code of the worker that failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sar.errors import BudgetError
from sar.extras import MissingLibraryError
from sar.partitioning.options import PartitioningError

from . import (
    convert,
    doctor,
    evaluate,
    gather,
    infer,
    info,
    ingest,
    launch,
    partition,
    plan,
    report,
    trace,
    transform,
)
from .output import Failure

_EXPECTED = (BudgetError, PartitioningError, ValueError, OSError, MissingLibraryError)
"""Errors about files, arguments and what is installed. Their message suffices, so no traceback is printed."""

_EPILOG = """\
examples:
  sar ingest --edges edges.parquet --out graph      make a graph out of a table of edges
  sar transform graph --add laplacian-pe=8          add columns of nodes that are computed of its edges
  sar partition graph.npz --parts 4 --out parts     cut a graph into 4 parts
  sar info parts/graph.json                         what a partition directory holds
  sar plan parts/graph.json --layers gcn:16,relu,gcn:7
                                                    memory and traffic that a run will take
  sar launch -n 4 train.py --lr 0.01                run train.py as 4 workers on this machine
  sar infer model:build --checkpoint model.pt --data parts --out pred.parquet
                                                    a trained model's output for every node, at its original id
  sar doctor                                        is everything installed, and does it work together?
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="sar",
        description="Full-batch training of graph neural networks on graphs split over several workers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the versions of the package and of its engine")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for module in (ingest, transform, partition, convert, info, plan, launch):
        module.add(commands)
    for module in (infer, evaluate, gather, report, trace, doctor):
        module.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand and returns the exit code."""
    top = parser()
    arguments = top.parse_args(argv)
    if arguments.version:
        return doctor.print_version()
    if arguments.command is None:
        top.print_help(sys.stderr)
        return 2
    try:
        return int(arguments.run(arguments))
    except BrokenPipeError:  # the reader of our output went away: `sar info … | head`
        sys.stderr.close()
        return 141
    except Failure as failure:
        print(f"sar {arguments.command}: {failure}", file=sys.stderr)
        return failure.code
    except _EXPECTED as error:
        print(f"sar {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"sar {arguments.command}: interrupted", file=sys.stderr)
        return 130
