"""Tensors that stand for numbers of nodes, of the edges of a split graph."""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, Tuple

import torch
from torch import Tensor

from sar._engine.native import refuse_pickle, shared
from sar.autograd.compile import uncompiled
from sar.graph.refused import caller

from .edges import SplitEdges
from .refusals import QUIET, check_readers, refused

_THE_SAME = frozenset([torch.ops.aten.detach.default, torch.ops.aten.alias.default])
_COUNTS = frozenset([Tensor.numel, Tensor.nelement, torch.numel])
_COUNT_OWN = frozenset(["torch_geometric.nn.conv.wl_conv_continuous.forward"])
"""Functions that make a tensor with a row for each edge."""


@shared
class SplitNumbers(Tensor):
    """Holds no numbers. Functions of torch that have no handler are refused: :mod:`sar.graph.edge_index.refusals`.

    ``numel()`` counts the edges of all workers, because layers that ask whether there are edges have to get the same
    answer on all of them.
    """

    per_edge: ClassVar[int] = 1
    """Numbers for each edge."""
    handlers: ClassVar[Dict[Any, Callable[..., Any]]]
    """Functions of torch with such tensors among their arguments. Handlers return ``NotImplemented`` where numbers are
    needed."""
    edges: SplitEdges
    """Whose numbers these are."""

    def numbers(self) -> Tensor:
        """The numbers as an ordinary tensor. Local."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        refuse_pickle("the edge index of a graph split over workers")

    @classmethod
    @uncompiled
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _COUNTS:
            edges = args[0].edges
            return args[0].per_edge * (edges.num_edges if caller() in _COUNT_OWN else edges.num_edges_global)
        if func in QUIET:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        check_readers()
        handler = cls.handlers.get(func)
        if handler is not None:
            result = handler(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return cls.without_handler(func, args, kwargs)

    @classmethod
    def without_handler(cls, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """What stands for a function that reads the numbers: an error."""
        raise refused(func, args)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:  # type: ignore[override]
        if func in _THE_SAME:
            return args[0]
        return cls.without_handler(func, args, kwargs or {})  # code that does not ask __torch_function__ arrives here
