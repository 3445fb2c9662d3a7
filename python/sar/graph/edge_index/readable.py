"""What may be read of the numbers of an edge index.

Destinations are own rows, and tensors of nodes have a row for each. Sources are columns: own rows, and from there on
halo rows, which no tensor of nodes of this worker has. A function that takes them for numbers of nodes reads out of
bounds, or gives another result than on the whole graph; and most kernels do not check. So functions that have no
handler do not get them.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch
from torch import Tensor

from sar.errors import WholeGraphError
from sar.graph.callers import called_by
from sar.graph.edge_tensor.tensor import OF_HOOKS

__all__ = ["INSTEAD", "check_readable"]

INSTEAD = (
    "it needs the edges of the whole graph, which are on several workers: apply it before the graph is partitioned. "
    "Rows of the sources of edges are x[edge_index[0]]; edge_index.numbers() gives the local numbers, in which sources "
    "from the number of own nodes on are halo rows"
)

_EQUAL = frozenset([Tensor.eq, Tensor.__eq__, torch.eq, Tensor.ne, Tensor.__ne__, torch.ne])
_SHAPES = frozenset(
    [
        *(getattr(torch, f"{name}_like") for name in ("empty", "zeros", "ones", "full", "rand", "randn")),
        *(getattr(Tensor, f"new_{name}") for name in ("empty", "zeros", "ones", "full", "tensor")),
        Tensor.requires_grad.__set__,  # type: ignore[attr-defined]
    ]
)
"""Functions that look at shape and dtype of their first argument alone."""


def check_readable(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Checks that a function may get the numbers of edge indices among its arguments.

    :raises sar.WholeGraphError: it would get those of sources; on every worker alike
    """
    if not any(map(_has_sources, (*args, *kwargs.values()))) or func in _SHAPES or func in OF_HOOKS:
        return
    # the ends of an edge are equal or not in these numbers as in any others
    if func in _EQUAL and len({id(getattr(a, "edges", a)) for a in args}) == 1:
        return
    name = getattr(func, "__name__", str(func))
    raise WholeGraphError(called_by(("torch_geometric", "dgl", "torch_sparse"), name), INSTEAD)


def _has_sources(tree: Any) -> bool:
    if isinstance(tree, (list, tuple)):
        return any(map(_has_sources, tree))
    if isinstance(tree, dict):
        return any(map(_has_sources, tree.values()))
    return bool(getattr(tree, "has_sources", False)) if isinstance(tree, Tensor) else False
