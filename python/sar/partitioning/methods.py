"""Which partitioner cuts a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Optional

import numpy as np

from sar.data.ingest.progress import Stages
from sar.extras import DISTRIBUTION, MissingLibraryError

from . import fennel, kaminpar, metis, mtkahypar
from .dataset import Dataset
from .options import OBJECTIVES, Options, PartitioningError


class Method(NamedTuple):
    """A partitioner."""

    assign: Optional[Callable[[Dataset, Options, Stages], np.ndarray]]
    """Gives the part of each node; None: the engine does, by the method's name."""
    needed: Callable[[int, int, Options], int]
    """Bytes that it takes at least, for so many nodes and directed edges."""
    objectives: tuple[str, ...] = ()
    library: Callable[[], object] = lambda: None
    """Raises MissingLibraryError where what it needs is not installed."""


METHODS: dict[str, Method] = {
    "mtkahypar": Method(
        mtkahypar.mtkahypar, lambda nodes, edges, _: mtkahypar.needed(nodes, edges), OBJECTIVES, mtkahypar.library
    ),
    "kaminpar": Method(
        kaminpar.kaminpar, lambda nodes, edges, _: kaminpar.needed(nodes, edges), ("cut",), kaminpar.library
    ),
    "metis": Method(metis.metis, lambda nodes, edges, _: metis.needed(nodes, edges), OBJECTIVES, metis.library),
    "fennel": Method(fennel.fennel, lambda nodes, _, options: fennel.needed(nodes, options), OBJECTIVES),
    "random": Method(None, lambda nodes, *_: 4 * nodes),
    "contiguous": Method(None, lambda nodes, *_: 12 * nodes),  # it counts in-edges
}


def check_objective(method: str, objective: Optional[str]) -> None:
    """:raises ValueError: the method cannot make few of what is asked for; the message says which methods can"""
    if objective is not None and objective not in METHODS[method].objectives:
        why = "counts edges between parts alone" if METHODS[method].objectives else "makes few of nothing"
        able = " or ".join(name for name, of in METHODS.items() if objective in of.objectives)
        raise ValueError(f"--objective {objective}: --method {method} {why}; choose --method {able}")


def installed(method: str) -> bool:
    try:
        METHODS[method].library()
    except MissingLibraryError:
        return False
    return True


def default_method(nodes: int, edges: int, memory: int, objective: Optional[str] = None) -> tuple[str, Optional[str]]:
    """The method for a graph of so many directed edges, and a note for the user."""
    by_metis = installed("metis") and metis.needed(nodes, edges) <= memory
    if objective == "volume":
        small = edges <= mtkahypar.SMALL and mtkahypar.needed(nodes, edges) <= memory
        if small and installed("mtkahypar"):
            return "mtkahypar", None
        return "metis" if by_metis else "fennel", None
    if not installed("kaminpar"):
        if by_metis:
            return "metis", None
        return "fennel", f"KaMinPar is not installed. For fewer cut edges: pip install '{DISTRIBUTION}[partition]'"
    if kaminpar.choose_context(nodes, edges, memory) is None:
        needed = kaminpar.needed(nodes, edges) >> 20
        return "fennel", f"KaMinPar would take about {needed} MiB of memory, more than the {memory >> 20} MiB there are"
    return "kaminpar", None


def check_memory(dataset: Dataset, method: str, format: str, options: Options) -> None:
    """Refuses what cannot be done with ``options.memory``, before anything is done.

    :param method: one of :data:`METHODS`, or anything else where the parts are given
    :raises PartitioningError: a step needs more; the message says which, how much, and what to do
    """
    nodes, edges = dataset.num_nodes, dataset.num_edges
    steps = {
        "counting cut edges": nodes * 12,  # a part, and a mark for each of 64 parts that read it
        f"writing {options.parts} parts": dataset.least_memory(options.parts, format),
    }
    if method in METHODS:
        steps[f"--method {method}"] = METHODS[method].needed(nodes, edges, options)
    step = max(steps, key=lambda name: steps[name])
    if steps[step] > options.memory:
        lighter = ", or choose --method fennel" if step.startswith("--method") and method != "fennel" else ""
        raise PartitioningError(
            f"{step} takes about {_mib(steps[step])} of memory for {nodes:,} nodes and {edges:,} edges, more than the "
            f"{_mib(options.memory)} there are: give more with --memory{lighter}"
        )


def cut(
    dataset: Dataset,
    method: Optional[str],
    format: str,
    options: Options,
    stage: Stages,
    tell: Callable[[str], object] = lambda note: None,
) -> tuple[str, np.ndarray]:
    """The method, and the part of each node, int32 ``[num_nodes]``.

    :param method: one of :data:`METHODS`; None: the best for the graph and the memory
    :param format: in which parts will be written
    :param tell: hears why it is not a better one
    :raises PartitioningError: the partitioner failed, or the memory does not do
    :raises ValueError: the method has no such objective
    :raises sar.extras.MissingLibraryError: it is not installed
    """
    if method is None:
        method, note = default_method(dataset.num_nodes, dataset.num_edges, options.memory, options.objective)
        if note:
            tell(f"{note}. Cutting with {method}.")
    check_objective(method, options.objective)
    METHODS[method].library()
    check_memory(dataset, method, format, options)
    return method, assign(dataset, method, options, stage)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"


def assign(dataset: Dataset, method: str, options: Options, stage: Stages) -> np.ndarray:
    """The part of each node, int32 ``[num_nodes]``.

    :raises PartitioningError: the partitioner failed, or needs more memory
    """
    partitioner = METHODS[method].assign
    if partitioner is not None:
        return partitioner(dataset, options, stage)
    with stage(f"assigning nodes ({method})"):
        return dataset.assign(method, options.parts, options.seed)
