"""KaMinPar: few cut edges of very large graphs, in a process of its own."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from sar.data.ingest.progress import Stages
from sar.extras import need

from .apart import Program, cut_apart
from .dataset import Dataset
from .options import Options

# Bytes a node and a neighbour of what the process takes. A line through two graphs, rounded up: 1 M nodes and 16 M
# neighbours took 655 MiB, 4 M and 100 M took 3347 MiB, with terapart 2875 MiB.
_NEEDS = {"default": (360, 22), "terapart": (360, 17)}


def library() -> Any:
    """:raises sar.extras.MissingLibraryError: KaMinPar is not installed"""
    return need("kaminpar", "partition", "--method kaminpar", "choose --method fennel, which comes with SAR")


def needed(nodes: int, neighbours: int, context: str = "terapart") -> int:
    """Bytes that cutting takes; an undirected edge is two neighbours."""
    of_node, of_neighbour = _NEEDS[context]
    return nodes * of_node + neighbours * of_neighbour + (64 << 20)


def choose_context(nodes: int, neighbours: int, memory: int) -> Optional[str]:
    """The first context that fits the memory; None where none does."""
    return next((c for c in _NEEDS if needed(nodes, neighbours, c) <= memory), None)


_PROGRAM = Program("KaMinPar", "kaminpar", needed, choose_context, one_thread=2_000_000)


def kaminpar(dataset: Dataset, options: Options, stage: Stages) -> np.ndarray:
    """KaMinPar's assignment int32 ``[num_nodes]``. Small graphs are cut by one thread, and the same seed gives the same
    parts; larger ones by all, and it does not.

    :raises PartitioningError: the memory does not do, or KaMinPar failed
    """
    with stage("reading edges in both directions") as step:
        dataset.undirect(options.scratch, options.memory_to_sort(dataset.num_nodes), step.progress)
    return cut_apart(_PROGRAM, dataset, options, stage)
