"""Which partitioner cuts a graph."""

from __future__ import annotations

from typing import Optional

import numpy as np

from . import kaminpar as kaminpar_module
from .dataset import Dataset
from .fennel import fennel
from .kaminpar import kaminpar
from .metis import find as find_pymetis, metis
from .options import Options, PartitioningError, Stage

METHODS = ("kaminpar", "metis", "fennel", "random", "contiguous")


def require(method: str) -> None:
    """:raises PartitioningError: what the method needs is not installed; the message says how to get it"""
    if method == "kaminpar":
        kaminpar_module.require()
    elif method == "metis":
        find_pymetis()


def default_method(nodes: int, edges: int, memory: int) -> tuple[str, Optional[str]]:
    """The method for a graph of so many directed edges, and a note for the user."""
    if not kaminpar_module.installed():
        note = f"KaMinPar is not installed. For fewer cut edges: pip install '{kaminpar_module.KAMINPAR}'"
        try:
            find_pymetis()
        except PartitioningError:
            return "fennel", note
        return ("metis", None) if nodes * 200 + edges * 100 <= memory else ("fennel", note)
    if kaminpar_module.choose_context(nodes, edges // 2, memory) is None:
        needed = kaminpar_module.needed(nodes, edges // 2, "terapart") >> 20
        return "fennel", f"KaMinPar would take about {needed} MiB of memory, more than the {memory >> 20} MiB there are"
    return "kaminpar", None


def assign(dataset: Dataset, method: str, options: Options, stage: Stage) -> np.ndarray:
    """The part of each node, int32 ``[num_nodes]``.

    :raises PartitioningError: the partitioner is not installed, failed, or needs more memory
    """
    if method == "kaminpar":
        return kaminpar(dataset, options, stage)
    if method == "metis":
        return metis(dataset, options, stage)
    if method == "fennel":
        return fennel(dataset, options, stage)
    with stage(f"assigning nodes ({method})"):
        return dataset.assign(method, options.parts, options.seed)
