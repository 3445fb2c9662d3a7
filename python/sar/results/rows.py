"""Which original ids a worker's rows have."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from sar.graph.manager import GraphShardManager


class OwnRows(NamedTuple):
    """A worker's nodes of one type, in the order of its rows.

    ``numbers``: int64 ``[n]``, the original number of each node, below ``total``, the nodes of the type over all
    workers; ``users``: the Parquet file that holds the users' own ids in this order, if there is one.
    """

    kind: str
    numbers: Tensor
    total: int
    users: Optional[str]


def own_rows(graph: Any, ntype: Optional[str] = None, ids: Optional[Tensor] = None) -> OwnRows:
    """The original ids of this worker's rows. Not collective.

    :param ids: original ids, int64: ``[own nodes]``, or, as ``partition_graph(..., return_mapping=True)`` of DGL gives
        them, ``[all nodes]`` by the partition's own numbers
    :raises TypeError: no graph of this package
    :raises KeyError: no such node type, or several and none is named
    :raises ValueError: a block, a partition that does not hold original ids, or ids that do not fit
    """
    if not isinstance(graph, GraphShardManager):
        raise TypeError(f"graph is a {type(graph).__name__}: give the one that sar.construct_full_graph made")
    state = graph._state
    if state.keep_seeds is not None:
        raise ValueError("graph is a block, which has rows of some nodes alone: give the full graph")
    kind = graph._ntype(ntype)
    rows = state.nodes[kind]
    if ids is not None:
        numbers, users = _given(ids, rows.num_own, rows.first, rows.num_global), None
    elif kind in state.node_keys:
        numbers, users = state.node_keys[kind]().to(torch.int64), state.node_ids.get(kind)
    else:
        raise ValueError(
            f"the partition does not say which original node a row of type {kind!r} is: it has no feature orig_id. "
            "Partition with `sar partition`, or give ids=, the node mapping that dgl.distributed.partition_graph(..., "
            "return_mapping=True) returned"
        )
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= rows.num_global):
        raise ValueError(
            f"original ids go from {int(numbers.min())} to {int(numbers.max())}, but there are {rows.num_global} nodes "
            f"of type {kind!r}: ids are 0 to {rows.num_global - 1}"
        )
    return OwnRows(kind, numbers.contiguous(), rows.num_global, users)


def _given(ids: Tensor, own: int, first: int, total: int) -> Tensor:
    given = torch.as_tensor(ids)
    if given.dtype == torch.bool or given.is_floating_point() or given.is_complex():
        raise TypeError(f"ids is {given.dtype}: give integers")
    if given.dim() != 1 or len(given) not in (own, total):
        raise ValueError(
            f"ids has shape {tuple(given.shape)}: expected ({own},), one for each own node, or ({total},), one for "
            "each node by its number in the partition"
        )
    if len(given) != own:
        given = given[first : first + own]
    return given.to("cpu", torch.int64)
