"""Writes rows of all workers at the original ids of their nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from sar.distributed.agreement import all_or_none, said_by_all

from . import npy, parquet
from .parquet import Column
from .rows import OwnRows, own_rows

if TYPE_CHECKING:
    from sar.graph.manager import GraphShardManager


def write_rows(
    path: Union[str, os.PathLike[str]],
    tensor: Union[Tensor, Dict[str, Tensor]],
    graph: GraphShardManager,
    ntype: Optional[str] = None,
    *,
    ids: Optional[Tensor] = None,
    columns: Optional[Sequence[str]] = None,
) -> None:
    """Writes a row for every node of the graph, at its original id. Collective.

    ``NAME.npy``: one array ``[nodes, ...]``, which ``numpy.load(path, mmap_mode="r")`` opens without reading it. Row k
    is the node of original number k. Workers write it together, on a filesystem that all hosts share.

    ``NAME.parquet``: a directory of that name with one file a worker, on any filesystem. Column ``id`` holds the ids
    that the users' own tables have, where the partition knows them, else original numbers; column ``value`` holds the
    row, a list of a fixed size where ``tensor`` has two dimensions. ``sar gather`` makes one file of them.

    A name appears when all workers have written and synced their rows; what was there before is replaced then. After
    an error on any worker all of them raise, and no file is left. bfloat16 is written as float32.

    :param path: ends in ``.npy`` or ``.parquet``; relative to the working directory of each worker
    :param tensor: ``[own nodes of the type, ...]``, any dtype and strides, without gradients; for Parquet also several
        by name
    :param graph: of :func:`sar.construct_full_graph`
    :param ntype: the node type, where there are several
    :param ids: original ids, where the partition does not hold them (DGL's own do not): the node mapping that
        ``dgl.distributed.partition_graph(..., return_mapping=True)`` returns, int64 ``[nodes of the type]``, or that of
        own nodes alone
    :param columns: for Parquet, names for the columns of a tensor of two dimensions, in place of one list
    :raises ValueError: shape, name or ids do not fit, or differ between workers
    :raises TypeError: no tensor, no graph of this package, or a dtype that the format does not have
    :raises OSError: the disk is full, the directory is missing, or not all workers see the file
    :raises ImportError: Parquet, and pyarrow is not installed
    :raises sar.RemoteError: one of these on another worker, which the message names
    """
    name = os.fspath(path)
    own, found = all_or_none("write_rows", lambda: _checked(name, tensor, graph, ntype, ids, columns))
    _agree(name, own, found)
    if name.endswith(".npy"):
        npy.write(name, own, found[0].tensor)
    else:
        parquet.write(name, own, found)


def _checked(
    path: str,
    tensor: Any,
    graph: Any,
    ntype: Optional[str],
    ids: Optional[Tensor],
    names: Optional[Sequence[str]],
) -> Tuple[OwnRows, List[Column]]:
    """What is to be written; everything that this worker alone can find wrong."""
    suffix = os.path.splitext(path)[1]
    if suffix not in (".npy", ".parquet"):
        raise ValueError(f"the name {path!r} does not say the format: give one that ends in .npy or .parquet")
    own = own_rows(graph, ntype, ids)
    given = tensor if isinstance(tensor, dict) else {"value": tensor}
    if not given or (suffix == ".npy" and isinstance(tensor, dict)):
        raise ValueError("a .npy file holds one tensor: give that, or write .parquet, where several have names")
    columns = []
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"tensor {name!r} is a {type(value).__name__}: give a torch.Tensor")
        if value.layout != torch.strided:
            raise TypeError(f"tensor {name!r} is {value.layout}: give a dense one (tensor.to_dense())")
        if value.dim() == 0 or len(value) != len(own.numbers):
            raise ValueError(
                f"tensor {name!r} has shape {tuple(value.shape)}, but this worker has {len(own.numbers)} nodes of type "
                f"{own.kind!r}: expected ({len(own.numbers)}, ...), the rows that a layer returns"
            )
        if 0 in value.shape[1:]:
            raise ValueError(f"tensor {name!r} has shape {tuple(value.shape)}: its rows are empty")
        columns.append(Column(str(name), value))
    if names is not None:
        columns = _split(columns, list(names), suffix)
    if suffix == ".parquet":
        parquet.check(columns)
    return own, columns


def _split(columns: List[Column], names: List[str], suffix: str) -> List[Column]:
    (_, value), *others = columns
    if suffix == ".npy" or others or value.dim() != 2 or len(names) != value.shape[1]:
        raise ValueError(
            f"columns has {len(names)} names: they are for one tensor of as many columns, in a .parquet file"
        )
    return [Column(str(name), value[:, i]) for i, name in enumerate(names)]


def _agree(path: str, own: OwnRows, columns: Sequence[Column]) -> None:
    """Raises on all ranks where they do not write the same thing."""
    mine = {
        "name": os.path.basename(path),
        "node type": own.kind,
        "ids": "the users' own" if own.users else "numbers",
        "columns": [[c.name, str(c.tensor.dtype), list(c.tensor.shape[1:])] for c in columns],
    }
    said = said_by_all(mine)
    for rank, other in enumerate(said):
        for key, value in said[0].items():
            if other[key] != value:
                raise ValueError(
                    f"write_rows: {key}: rank 0 has {value!r}, rank {rank} has {other[key]!r}; all workers must write "
                    "the same"
                )
