"""Models of PyG on graphs split over workers.

::

    data = sar.pyg.load("parts/cora.json")     # in place of the whole graph
    model = torch_geometric.nn.GAT(data.num_features, 64, num_layers=3, out_channels=7, heads=4)
    sar.sync_params(model)
    out = model(data.x, data.edge_index)

torch_geometric is imported when one of these functions is called.
"""

from __future__ import annotations

from typing import Any

from .extras import need

__all__ = ["edge_index", "load", "restore"]


def load(path: Any) -> Any:
    """This worker's part of a partitioned graph as a ``torch_geometric.data.Data``. Collective.

    - ``x``, ``y``, masks and other columns of nodes: the rows of own nodes. Columns called ``feat`` and ``label`` are
      ``x`` and ``y``
    - ``n_id``: int64, the original id of each own node, where the partition has them; else its id in the partition
    - ``edge_index``: see :func:`edge_index`
    - ``edge_attr`` and other columns of edges: ``[in-edges of own nodes, ...]``; floating-point ones are
      :class:`~sar.graph.edge_tensor.tensor.EdgeTensor`

    :param path: the JSON file of ``sar partition`` or of DGL's partitioner, or the directory that it lies in
    :raises OSError: a file is missing
    :raises sar.FormatError: a file is damaged
    :raises ValueError: the number of partitions is not the number of workers
    :raises NotImplementedError: a graph of several node types or relations
    :raises sar.extras.MissingLibraryError: torch_geometric is not installed
    """
    _adapt()
    from .integrations.pyg import data

    return data.load(path)


def edge_index(graph: Any) -> Any:
    """The edge index of a graph manager, as layers of PyG take it: int64 ``[2, in-edges of own nodes]``.

    Where its numbers are read, row 0 has columns of sources (own nodes, then halo rows, which ``graph.column_nodes()``
    names) and row 1 has own rows of destinations. Layers take tensors of nodes with a row for each own node with it.

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
