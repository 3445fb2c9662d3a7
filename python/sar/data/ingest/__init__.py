"""Makes graph directories out of tables, arrays, and graphs of DGL and PyG, in bounded memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

from sar.units import parse_size

from .progress import Stages, silent

if TYPE_CHECKING:
    from sar.data.graph_directory import GraphDirectory
    from sar.integrations.types import Data, DGLGraph, HeteroData


def ingest(
    source: Union[str, os.PathLike[str], Mapping[str, Any], DGLGraph, Data, HeteroData],
    out: Union[str, os.PathLike[str]],
    *,
    symmetrize: bool = False,
    deduplicate: bool = False,
    self_loops: bool = False,
    skip_bad_rows: bool = False,
    memory: Union[str, int] = "4GiB",
    scratch: Union[str, os.PathLike[str], None] = None,
    threads: Optional[int] = None,
    name: Optional[str] = None,
    stages: Stages = silent,
) -> GraphDirectory:
    """Makes the directory of a graph, which ``sar partition`` cuts into parts.

    The edges of each type are sorted by destination and source. Nodes are numbered in the order of their table, or
    where there is none, in ascending order of their ids; ids that are not these numbers are kept in a Parquet file.

    :param source: a DGL graph; a ``Data`` or ``HeteroData`` of PyG; a mapping with the content of a schema file; or the
        path of a schema file (.yaml), of an .npz file, or of a directory of .npy files, of OGB's raw files, or of
        DGL's chunked format. Features of DGL and PyG keep their names, but x becomes features, y labels and
        edge_weight weight
    :param out: the directory to make; must not exist, or be empty. It appears when it is complete
    :param symmetrize: add the reverse of each edge, self loops apart. The reverse has the weight and the features of
        its edge
    :param deduplicate: keep one of several edges with the same ends: the first in the file, with its weight and
        features. A reverse that ``symmetrize`` adds stands where its edge stands, after it
    :param self_loops: add an edge from each node to itself, where there is none. Its weight and its features are 1
    :param skip_bad_rows: leave out rows that cannot be taken, instead of refusing the whole
    :param memory: bytes, such as ``"4GiB"``; ``"4G"`` is the same, and ``"4GB"`` is 4 * 10**9. What does not fit goes
        to disk
    :param scratch: a directory for that; None for one beside ``out``
    :param threads: None for as many as there are cores
    :param name: the name of the graph; None for that of ``out``
    :param stages: is called with the name of each step, and gives a context manager for it
    :raises ValueError: the source is not as it should be, or has bad rows (the message names the first ten)
    :raises FileExistsError: ``out`` holds something, or another process is making it
    :raises sar.BudgetError: the memory is not enough
    :raises ImportError: the libraries of the extra ``sar-gnn[ingest]`` are not installed
    """
    from .make import make  # with all that reads and sorts, which training does not need

    switches = {"symmetrize": symmetrize, "deduplicate": deduplicate, "self_loops": self_loops}
    return make(source, out, switches, skip_bad_rows, parse_size(memory), scratch, threads, name, stages)
