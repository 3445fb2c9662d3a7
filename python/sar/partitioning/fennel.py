"""Fennel, the streaming partitioner of the engine."""

from __future__ import annotations

import numpy as np

from sar.data.ingest.progress import Stages

from . import weights
from .dataset import Dataset
from .hosts import without_empty_parts
from .options import Options

_BUFFERS = 64 << 20


def needed(nodes: int, options: Options) -> int:
    """Bytes that cutting takes, whatever the number of edges: the part and the weights of each node, 8 bytes a node to
    sort edges or to read the neighbours of the largest node, and by rows 8 for every 32 parts that may read it."""
    kinds = 0 if options.balance == ("nodes",) else len(options.balance)
    readers = -(-options.parts // 32) if options.objective == "volume" else 0
    return nodes * (4 + 4 * kinds + 8 + 8 * readers) + _BUFFERS


def fennel(dataset: Dataset, options: Options, stage: Stages) -> np.ndarray:
    """Fennel's assignment int32 ``[num_nodes]``. It depends on the seed alone."""
    with stage("reading edges in both directions") as step:
        dataset.undirect(options.scratch, options.memory_to_sort(dataset.num_nodes), step.progress)
    weight = weights.kinds(dataset, options.balance)
    assignment = np.full(dataset.num_nodes, -1, np.int32)
    imbalance, rows = options.imbalance_of_a_level, options.objective == "volume"
    if options.hosts > 1:
        with stage(f"assigning nodes to {options.hosts} hosts (fennel)") as step:
            dataset.fennel(assignment, options.hosts, 1, imbalance, options.seed, weight, step.progress, rows=rows)
    if options.hosts == 1 or options.parts_of_a_host > 1:
        if options.hosts > 1:
            np.subtract(-1, assignment, out=assignment)  # -1 - host, as the engine wants it
        with stage("assigning nodes (fennel)") as step:
            groups = options.hosts
            dataset.fennel(assignment, options.parts, groups, imbalance, options.seed, weight, step.progress, rows=rows)
    return without_empty_parts(assignment, options.parts)
