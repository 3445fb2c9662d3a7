"""One call from a partitioned graph to what a training script needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Union, overload

from . import pyg as _pyg
from .graph.construct import load_graph
from .graph.manager import GraphShardManager

if TYPE_CHECKING:
    from .integrations.pyg.data import SplitData, SplitHeteroData


@overload
def load(path: Union[str, os.PathLike[str]], *, pyg: Literal[False] = False) -> GraphShardManager: ...


@overload
def load(path: Union[str, os.PathLike[str]], *, pyg: Literal[True]) -> Union[SplitData, SplitHeteroData]: ...


def load(
    path: Union[str, os.PathLike[str]], *, pyg: bool = False
) -> Union[GraphShardManager, SplitData, SplitHeteroData]:
    """This worker's part of a partitioned graph, with the columns of its nodes and edges. Collective.

    As a graph, it takes the place of a DGL graph. Columns have the names that the partition has for them:

    - ``graph.ndata["features"]``: ``[own nodes, ...]``. With several node types it is
      ``graph.nodes["paper"].data["features"]``. Masks, whose names end in ``_mask``, are bool; other columns have the
      dtype of the file. Matrices stay in their files where ``Config.features`` is ``"mapped"``. The graph holds its
      columns; ``graph.ndata.pop(name)`` gives one up
    - ``graph.edata["w"]``: ``[in-edges of own nodes, ...]``, read when it is first used

    For PyG it is a ``Data`` of torch_geometric where there is one node type and one relation, else a ``HeteroData``,
    with the same columns:

    - ``x``, ``y``, masks and other columns of nodes: columns called ``feat`` or ``features`` and ``label`` or
      ``labels`` are ``x`` and ``y``
    - ``n_id``: int64, the original id of each own node, where the partition has them; else its id in the partition
    - ``edge_index``: see :func:`sar.pyg.edge_index`
    - ``edge_attr`` and other columns of edges; floating-point ones are
      :class:`~sar.graph.edge_tensor.tensor.EdgeTensor`

    Both have ``num_classes``, an int, and ``total(what)``, a sum over all workers as a float::

        graph = sar.load("parts/cora.json")
        train, labels = graph.ndata["train_mask"], graph.ndata["labels"]
        model = GCN(graph.ndata["features"].shape[1], graph.num_classes)
        loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / graph.total("train_mask")

    :param path: the JSON file of ``sar partition``, :func:`sar.pyg.partition` or ``dgl.distributed.partition_graph``,
        or the directory that it lies in
    :param pyg: whether data for PyG is wanted. What is installed does not decide: a script gets the same everywhere
    :raises OSError: a file is missing
    :raises sar.FormatError: a file is damaged
    :raises ValueError: the number of partitions is not the number of workers
    :raises RuntimeError: before :func:`sar.initialize_comms`
    :raises sar.extras.MissingLibraryError: torch_geometric is wanted and not installed
    """
    if pyg:
        return _pyg.load(path)
    graph, columns = load_graph(path)
    for kind, own in columns.items():
        graph.nodes[kind].data.update(own)
    return graph
