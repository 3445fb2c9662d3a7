"""Row counts of a graph, local and global."""

from __future__ import annotations

from typing import Any, Iterator

import torch
from torch import Tensor


class Counts(Tensor):
    """Rows of each graph in the batch, on this worker. Dividing by it divides by the rows of all workers.

    Layers divide by the number of nodes to get a mean over the graph, and use it otherwise to size their tensors.
    """

    whole: Tensor

    @staticmethod
    def of(own: Tensor, whole: Tensor) -> Counts:
        """int64 ``[graphs]``: rows of this worker, which know the rows of all."""
        made = own.as_subclass(Counts)
        made.whole = whole
        return made

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))  # torch's own does not ask for overrides

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.__getitem__:
                return Counts.of(args[0][args[1]], args[0].whole[args[1]])
            if func in _QUOTIENTS and len(args) == 2 and isinstance(args[1], Counts):
                return func(args[0], args[1].whole, **kwargs)
            return func(*args, **kwargs)


_QUOTIENTS = frozenset([torch.div, torch.true_divide, Tensor.div, Tensor.__truediv__, Tensor.true_divide])
