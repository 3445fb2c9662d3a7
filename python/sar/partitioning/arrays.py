"""Cuts a graph that is in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Optional

import numpy as np

from sar.data.directory import scratch_directory
from sar.data.ingest.progress import silent

from . import methods
from .dataset import Dataset
from .limits import available
from .options import Options, PartitioningError
from .parts import PartsOptions, memory_to_write, other_graph, write_parts


def partition_arrays(
    arrays: Mapping[str, np.ndarray], parts: int, out: str, name: str, method: Optional[str], seed: int
) -> str:
    """Writes ``out/<name>.json`` and ``out/part0``, ``out/part1``, and so on.

    :param arrays: as ``.npz`` files of several types have them: ``type/name`` and ``source:relation:target/edge_index``
    :param method: as ``sar partition --method`` has it; None: its default
    :returns: the path of the description
    :raises PartitioningError: the partitioner failed, the memory does not do, or ``out`` holds the
        parts of another graph
    :raises ValueError: numbers or names that do not fit
    """
    if parts < 1:
        raise ValueError(f"a graph is cut into 1 or more parts, not {parts}")
    if not name or os.sep in name:
        raise ValueError(f"name {name!r} must be a plain file name")
    if method is not None and method not in methods.METHODS:
        raise ValueError(f"method {method!r} is unknown: give one of {', '.join(methods.METHODS)}")
    taken = other_graph(out, name)
    if taken:
        raise PartitioningError(f"{out} holds the parts of another graph ({taken}): give another directory")
    with scratch_directory(os.path.join(out, f".{name}-arrays.partial")) as scratch:
        file = os.path.join(scratch, "graph.npz")
        np.savez(file, **arrays)  # type: ignore[arg-type]
        with contextlib.closing(Dataset(file)) as dataset:
            if parts > max(1, dataset.num_nodes):
                raise ValueError(f"{parts} parts are more than the {dataset.num_nodes} nodes of the graph")
            options = Options(parts=parts, seed=seed, memory=available(), scratch=scratch)
            method, assignment = methods.cut(dataset, method, "sar", options, silent)
            memory = min(options.memory, memory_to_write(dataset, parts, "sar"))
            write_parts(dataset, assignment, parts, out, PartsOptions(name, method, "sar", memory))
    return os.path.join(out, f"{name}.json")
