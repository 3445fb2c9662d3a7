"""Translates seed nodes of scripts to the engine's numbering."""

from __future__ import annotations

from typing import Any, List, Mapping, Union

import numpy as np
import torch
from torch import Tensor

from sar.graph.manager import GraphShardManager

Seeds = Union[Tensor, Mapping[str, Tensor]]
"""Node ids; by node type where there are several."""


def own_numbers(graph: GraphShardManager, seeds: Seeds) -> Tensor:
    """Seeds, int64, numbered over all types from the worker's first node.

    :raises ValueError: a seed that this worker does not own
    :raises KeyError: an unknown node type
    """
    first, end = graph.tgt_node_range
    if not isinstance(seeds, Mapping):
        numbers = ids_of(seeds) - first
        _check_owned(numbers, end - first, first, "")
        return numbers
    found = [torch.empty(0, dtype=torch.int64)]
    for ntype, ids in seeds.items():
        if ntype not in graph.ntypes:
            raise KeyError(f"seed nodes of type {ntype!r}: there are the types {', '.join(graph.ntypes)}")
        info = graph._state.nodes[ntype]
        rows = ids_of(ids) - info.first
        _check_owned(rows, info.num_own, info.first, f" of type {ntype!r}")
        found.append(rows + info.offset)
    return torch.cat(found)


def rows_by_type(graph: GraphShardManager, numbers: Tensor) -> List[Tensor]:
    """Own rows by node type, ascending and none twice, of what :func:`own_numbers` gives."""
    ordered = np.sort(numbers.numpy())  # np.unique hashes, which takes longer than all the rest
    ordered = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    found = []
    for ntype in graph.ntypes:
        info = graph._state.nodes[ntype]
        low, high = np.searchsorted(ordered, (info.offset, info.offset + info.num_own))
        found.append(torch.from_numpy(ordered[low:high] - info.offset))
    return found


def ids_of(ids: Any) -> Tensor:
    """Ids, int64 in one dimension.

    :raises ValueError: they are no integers, or have another number of dimensions
    """
    ids = torch.as_tensor(ids)
    if ids.dim() != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"seed nodes are {ids.dtype} of shape {tuple(ids.shape)}: give ids, integers in one dimension")
    return ids.detach().to("cpu", torch.int64)


def _check_owned(rows: Tensor, own: int, first: int, what: str) -> None:
    if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= own):
        bad = rows[(rows < 0) | (rows >= own)][0]
        raise ValueError(
            f"seed node {int(bad) + first}{what} is not of this worker, which owns {first} to {first + own - 1}: give "
            "each worker seeds among its own nodes"
        )
