"""Tensors that stand for numbers of nodes, of the edges of a split graph."""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, Optional, Tuple

import torch
from torch import Tensor

from sar._engine.native import refuse_pickle, shared
from sar.autograd.compile import uncompiled
from sar.graph.edge_tensor.tensor import METADATA, changes

from .edges import SplitEdges
from .readers import check_readers

__all__ = ["SplitNumbers", "numbers"]

_COUNTS = frozenset([Tensor.numel, Tensor.nelement, torch.numel])


@shared
class SplitNumbers(Tensor):
    """Holds no numbers. Functions of torch that have no handler read them, which is local.

    ``numel()`` counts the edges of all workers, because layers that ask whether there are edges have to get the same
    answer on all of them.
    """

    per_edge: ClassVar[int] = 1
    """Numbers for each edge."""
    handlers: ClassVar[Dict[Any, Callable[..., Any]]]
    """Functions of torch with such tensors among their arguments. Handlers return ``NotImplemented`` where numbers are
    needed."""
    _edges: SplitEdges

    @property
    def edges(self) -> SplitEdges:
        """Whose numbers these are."""
        return self._edges

    def numbers(self) -> Tensor:
        """The numbers as an ordinary tensor. Local."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        refuse_pickle("the edge index of a graph split over workers")

    @classmethod
    @uncompiled
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _COUNTS:
            return args[0].per_edge * args[0].edges.num_edges_global
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        check_readers()
        handler = cls.handlers.get(func)
        if handler is not None:
            result = handler(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if changes(func) and args and isinstance(args[0], SplitNumbers):
            raise NotImplementedError(
                f"{getattr(func, '__name__', func)} would change the edge index of a graph split over workers, which "
                "holds no numbers: change the graph before it is partitioned, or edge_index.numbers()"
            )
        return func(*(numbers(a) for a in args), **{k: numbers(v) for k, v in kwargs.items()})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        return func(*(numbers(a) for a in args), **{k: numbers(v) for k, v in (kwargs or {}).items()})


def numbers(tree: Any) -> Any:
    """The same structure with the numbers of all such tensors."""
    if isinstance(tree, Tensor):
        read = getattr(tree, "numbers", None)
        return tree if read is None else read()
    if isinstance(tree, (list, tuple)):
        made = [numbers(item) for item in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    return tree
