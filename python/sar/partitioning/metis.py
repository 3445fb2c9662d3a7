"""METIS, through pymetis."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from sar.data.ingest.progress import Stages
from sar.extras import need

from . import weights
from .dataset import Dataset
from .hosts import by_hosts, without_empty_parts
from .options import Options

_LONG = 10_000_000  # neighbours from which METIS takes some seconds


def library() -> Any:
    """:raises sar.extras.MissingLibraryError: pymetis is not installed"""
    return need("pymetis", "partition", "--method metis", "choose --method fennel, random or contiguous")


def needed(nodes: int, edges: int) -> int:
    """Bytes that METIS takes for a graph of so many directed edges: 4 M nodes and 100 M edges took 9.8 GiB."""
    return nodes * 200 + edges * 100


def metis(dataset: Dataset, options: Options, stage: Stages) -> np.ndarray:
    """METIS's assignment int32 ``[num_nodes]``: k-way, few cut edges, or few rows. Several kinds of balance are
    weighed together."""
    pymetis = library()
    index = pymetis.zero_copy_dtype() if hasattr(pymetis, "zero_copy_dtype") else np.dtype(np.int32)
    with stage("building the undirected adjacency") as step:
        dataset.undirect(options.scratch, options.memory_to_sort(dataset.num_nodes), step.progress)
        xadj, adjncy = dataset.adjacency(index)
    weight = weights.combined(dataset, options.balance, index)

    def cut(parts: int, imbalance: float, hosts: Optional[np.ndarray], host: int) -> np.ndarray:
        rows, columns, of_nodes = xadj, adjncy, weight
        if hosts is not None:
            chosen = hosts == host
            rows, columns = _among(xadj, adjncy, chosen)
            of_nodes = None if weight is None else weight[chosen]
        nodes = len(rows) - 1
        if parts == 1 or nodes <= parts:
            return (np.arange(nodes) % parts).astype(np.int32)
        what = f"cutting {nodes:,} nodes and {len(columns) // 2:,} undirected edges into {parts} with METIS"
        with stage(what) as step:
            if len(columns) > _LONG:
                step.announce()
            adjacency = (
                {"adjacency": pymetis.CSRAdjacency(rows, columns)}
                if hasattr(pymetis, "CSRAdjacency")
                else {"xadj": rows, "adjncy": columns}
            )
            by_volume = options.objective == "volume"
            settings = pymetis.Options(
                seed=options.seed, ufactor=max(1, round(1000 * imbalance)), objtype=int(by_volume)
            )
            _, membership = pymetis.part_graph(parts, vweights=of_nodes, recursive=False, options=settings, **adjacency)
        return without_empty_parts(np.asarray(membership, dtype=np.int32), parts)

    return by_hosts(cut, options)


def _among(xadj: np.ndarray, adjncy: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The adjacency of some nodes, numbered in ascending order, without what leads to others."""
    number = np.cumsum(chosen) - 1
    inside = np.repeat(chosen, np.diff(xadj)) & chosen[adjncy]
    before = np.concatenate([[0], np.cumsum(inside)])[xadj]  # entries that stay before each row
    degrees = np.diff(before)[chosen]
    rows = np.concatenate([[0], np.cumsum(degrees)])
    return rows.astype(xadj.dtype), number[adjncy[inside]].astype(adjncy.dtype)
