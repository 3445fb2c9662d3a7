"""Ids of any nodes, by which rows of nodes are picked."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from sar.graph.state import GraphState

from .asked import fetch_rows
from .draw import permuted
from .originals import originals


class NodeIds(Tensor):
    """int64 ``[n]``: ids of any nodes. ``x[ids]`` and ``x.index_select(0, ids)`` of rows of own nodes are
    :func:`sar.fetch`, and collective. Other functions of torch read the numbers."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.__getitem__ and isinstance(args[1], NodeIds):
                return fetch_rows(args[0], args[1].as_subclass(Tensor))
            if func in (Tensor.index_select, torch.index_select):
                x, dim, ids = _picked(*args, **(kwargs or {}))
                if isinstance(ids, NodeIds) and dim % x.dim() == 0:
                    return fetch_rows(x, ids.as_subclass(Tensor))
            found = func(*args, **(kwargs or {}))
            return found.as_subclass(Tensor) if isinstance(found, NodeIds) else found


def _picked(input: Tensor, dim: int, index: Tensor) -> Tuple[Tensor, int, Tensor]:
    return input, dim, index


def shuffled(state: GraphState, kind: str, seed: int) -> NodeIds:
    """For each own node the one that takes its place in a permutation of the nodes of all workers, which follows from
    original ids alone. Collective.

    :param kind: the node type
    """
    ids = originals(state, kind)
    own = ids.of_own(state.nodes[kind])
    return ids.nodes(permuted(ids.num_nodes, seed, own)).as_subclass(NodeIds)
