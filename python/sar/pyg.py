"""Models of PyG on graphs split over workers.

::

    sar.pyg.partition(dataset[0], 4, "parts")   # once
    data = sar.load("parts", pyg=True)          # in place of the whole graph
    model = torch_geometric.nn.GAT(data.num_features, 64, num_layers=3, out_channels=7, heads=4)
    sar.sync_params(model)
    out = model(data.x, data.edge_index)

torch_geometric is imported when one of these functions is called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional, Union

from .extras import need

if TYPE_CHECKING:
    from .graph.edge_index.index import SplitEdgeIndex
    from .graph.manager import GraphShardManager
    from .integrations.pyg.data import SplitData, SplitHeteroData
    from .integrations.types import Data, HeteroData

__all__ = ["edge_index", "load", "partition", "restore"]


def load(path: Union[str, os.PathLike[str]]) -> Union[SplitData, SplitHeteroData]:
    """:func:`sar.load` with ``pyg=True``. Collective.

    :param path: see there, where the columns and errors are listed as well
    """
    _adapt()
    from .integrations.pyg import data

    return data.load(path)


def partition(
    data: Union[Data, HeteroData],
    parts: int,
    out: Union[str, os.PathLike[str]],
    *,
    name: str = "graph",
    method: Optional[str] = None,
    seed: int = 0,
) -> str:
    """Cuts a whole graph and writes a partition for each worker, as ``sar partition`` does. Runs on one process, before
    :func:`sar.initialize_comms` or without it.

    Tensors with a row for each node or edge are written; bools come back as ``uint8``, but for those whose name ends in
    ``_mask``.

    :param data: a ``Data`` or ``HeteroData`` of torch_geometric, with ``edge_index``
    :param parts: number of parts: one for each worker
    :param out: directory to write to; made if missing
    :param name: name of the graph, and of its description in ``out``
    :param method: ``"mtkahypar"``, ``"kaminpar"``, ``"metis"``, ``"fennel"``, ``"random"`` or ``"contiguous"``; by
        default the best one that is installed
    :param seed: of what is drawn by chance
    :returns: the path that :func:`load` takes
    :raises TypeError: it is no Data and no HeteroData
    :raises ValueError: arguments that do not fit, a relation without ``edge_index``, or a split graph
    :raises sar.FormatError: an edge ends at a node that is not there, or columns do not fit
    :raises RuntimeError: ``out`` holds the parts of another graph, the memory does not do, or the partitioner fails
    :raises sar.extras.MissingLibraryError: torch_geometric, or the partitioner, is not installed
    """
    need("torch_geometric", "pyg", "sar.pyg")
    from .integrations.pyg import partition as partitioner

    return partitioner.partition(data, parts, out, name, method, seed)


def edge_index(graph: GraphShardManager) -> SplitEdgeIndex:
    """The edge index of a graph manager, as layers of PyG take it: int64 ``[2, in-edges of own nodes]``.

    Layers take tensors of nodes with a row for each own node with it. Functions of torch that would read its numbers
    raise :class:`sar.WholeGraphError`, but for ``x[edge_index[0]]``, sums by its rows, masks and the like.
    ``edge_index.numbers()`` is an ordinary tensor: row 0 has columns of sources (own nodes, then halo rows, which
    ``graph.column_nodes()`` names), row 1 own rows of destinations.

    :param graph: of :func:`sar.construct_full_graph`; where there are several relations, ``graph[relation]``
    :raises ValueError: a graph of several relations
    :raises sar.extras.MissingLibraryError: torch_geometric is not installed
    """
    _adapt()
    from .integrations.pyg import data

    return data.edge_index(graph)


def restore() -> None:
    """Undoes what was replaced in torch_geometric. The next edge index replaces it again, unless
    ``sar.Config.patch_pyg`` is ``False``."""
    need("torch_geometric", "pyg", "sar.pyg")
    from .integrations.pyg import patches

    patches.restore()


def _adapt() -> None:
    need("torch_geometric", "pyg", "sar.pyg")
    from .integrations.pyg import patches

    patches.adapt()
