"""Which edges are self loops, as functions of PyG ask it: ``edge_index[0] == edge_index[1]``."""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, Optional, Tuple

import torch
from torch import Tensor

from sar.distributed.agreement import summed
from sar.graph.edge_tensor.functions import changes
from sar.graph.edge_tensor.nested import mapped
from sar.graph.edge_tensor.tensor import values

from .edges import SplitEdges
from .placeholders import SplitNumbers
from .refusals import refused


class LoopMask(SplitNumbers):
    """bool ``[num_edges]``: whether an edge is a self loop, or is none.

    An edge index remembers the edges without self loops, so that those that ``edge_index[:, mask]`` picks are made
    once. ``sum()``, ``any()`` and ``all()`` are about the edges of all workers, as ``numel()`` is; they are collective.
    Functions that look at the edges one by one read the numbers, which is local.

    :param edges: of one node type
    :param loops: whether self loops are True, or the others
    """

    handlers: ClassVar[Dict[Any, Callable[..., Any]]] = {}
    loops: bool

    @staticmethod
    def __new__(cls, edges: SplitEdges, loops: bool) -> LoopMask:
        edges.check_square()
        self: LoopMask = Tensor._make_wrapper_subclass(cls, (edges.num_edges,), dtype=torch.bool)
        self.edges, self.loops = edges, loops
        return self

    def numbers(self) -> Tensor:
        """The entries as an ordinary tensor. Local."""
        columns, rows = self.edges.numbers()
        return columns == rows if self.loops else columns != rows

    @classmethod
    def without_handler(cls, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """An entry is true of its edge on any number of workers, so functions get the entries."""
        if changes(func) and isinstance(args[0], LoopMask):
            raise refused(func, args)
        args, kwargs = unmasked((args, kwargs))
        return func(*args, **kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"LoopMask({self.numbers()})"


def unmasked(tree: Any) -> Any:
    """The same structure with the entries of masks in their places."""
    return mapped(tree, lambda leaf: leaf.numbers() if isinstance(leaf, LoopMask) else leaf)


def _sum(input: LoopMask, dim: Optional[int] = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dim is not None or keepdim or dtype not in (None, torch.int64):
        return NotImplemented
    return summed(input.numbers().sum())


def _inverted(input: LoopMask) -> LoopMask:
    return LoopMask(input.edges, not input.loops)


def _getitem(input: Any, index: Any) -> Any:
    """Columns of edges."""
    if not isinstance(index, LoopMask):
        return NotImplemented
    if input.shape[0] != index.edges.num_edges:
        raise ValueError(
            f"a tensor of shape {tuple(input.shape)} was given for {index.edges.num_edges} edges: tensors of edges "
            "have a row for each in-edge of own nodes, as data.edge_attr has, and belong to the edge_index that they "
            "came with"
        )
    return values(input)[index.numbers()]


LoopMask.handlers = {
    Tensor.__getitem__: _getitem,
    **dict.fromkeys([Tensor.sum, torch.sum], _sum),
    **dict.fromkeys([Tensor.any, torch.any], lambda input: _sum(input) > 0),
    **dict.fromkeys([Tensor.all, torch.all], lambda input: _sum(input) == input.edges.num_edges_global),
    **dict.fromkeys([Tensor.__invert__, Tensor.logical_not, torch.logical_not, torch.bitwise_not], _inverted),
}
