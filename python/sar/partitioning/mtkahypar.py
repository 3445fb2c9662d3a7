"""Mt-KaHyPar: few rows that travel, in a process of its own."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

import numpy as np

from sar.data.ingest.progress import Stages
from sar.extras import need

from .apart import Program, cut_apart
from .dataset import Dataset
from .options import Options

SMALL = 2_000_000
"""Neighbours of a graph up to which one thread cuts, in a minute or two."""


def library() -> Any:
    """:raises sar.extras.MissingLibraryError: Mt-KaHyPar is not installed"""
    return need("mtkahypar", "partition", "--method mtkahypar", "choose --method fennel, which comes with SAR")


def needed(nodes: int, neighbours: int) -> int:
    """Bytes that cutting takes, an estimate; an undirected edge is two neighbours. 19 thousand nodes and 1.6 M
    neighbours took 266 MiB, Python among it."""
    return nodes * 1000 + neighbours * 100 + (64 << 20)


def _mode(objective: str, nodes: int, neighbours: int, memory: int) -> Optional[str]:
    return objective if needed(nodes, neighbours) <= memory else None


def mtkahypar(dataset: Dataset, options: Options, stage: Stages) -> np.ndarray:
    """Mt-KaHyPar's assignment int32 ``[num_nodes]``. Small graphs are cut by one thread, and the same seed gives the
    same parts; larger ones by all, and it does not.

    :raises PartitioningError: the memory does not do, or Mt-KaHyPar failed
    """
    objective = options.objective or "volume"
    outward = objective == "volume"  # a row goes where its node's own edges lead
    with stage("reading edges") as step:
        memory = options.memory_to_sort(dataset.num_nodes)
        dataset.undirect(options.scratch, memory, step.progress, outward=outward)
    mode = partial(_mode, objective)
    program = Program("Mt-KaHyPar", "mtkahypar", needed, mode, one_thread=SMALL)
    return cut_apart(program, dataset, options, stage)
