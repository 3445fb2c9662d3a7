"""What layers of DGL ask of a graph besides message passing."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from .graphshard import GraphShardManager
    from .relation import Relation

__all__ = ["Counts", "EmptyRows", "GraphIndex", "LayerSupport", "adapt_layers", "counts"]


class LayerSupport:
    """What a graph manager inherits so that DGL's layers find what they look for."""

    _relations: List[Relation]

    @property
    def _graph(self) -> GraphIndex:
        """In DGL the graph's C++ half; ``dgl.ops.edge_softmax`` asks it how many relations there are."""
        return GraphIndex(self)

    def add_self_loop(self, fill_data: float = 1.0) -> GraphShardManager:
        """A new graph with one more edge for each node, from it to itself, behind the others. Collective.

        :param fill_data: what the new edges have in ``edata``
        :raises ValueError: a block, or a graph of several types
        """
        from .self_loops import with_self_loops

        return with_self_loops(cast("GraphShardManager", self), fill_data)

    def remove_self_loop(self) -> GraphShardManager:
        """A new graph without the edges from a node to itself. Collective.

        :raises ValueError: a block, or a graph of several types
        """
        from .self_loops import without_self_loops

        return without_self_loops(cast("GraphShardManager", self))


class GraphIndex:
    """Stands where a DGL graph has its C++ half, and leads back to the graph manager."""

    def __init__(self, manager: LayerSupport) -> None:
        self.manager = manager

    def number_of_etypes(self) -> int:
        """How many relations the graph has."""
        return len(self.manager._relations)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(
            f"graph._graph.{name} is inside DGL's C++ graph, which a graph split over workers does not have: use the "
            "methods of the graph itself"
        )


class Counts(Tensor):
    """Rows of each graph in the batch, on this worker; a quotient by it is a quotient by the rows of all workers.

    Layers divide by the number of nodes to get a mean over the graph, and use it otherwise to size their tensors.
    """

    whole: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))  # torch's own does not ask for overrides

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.__getitem__:
                return _counts(args[0][args[1]], args[0].whole[args[1]])
            if func in _QUOTIENTS and len(args) == 2 and isinstance(args[1], Counts):
                return func(args[0], args[1].whole, **kwargs)
            return func(*args, **kwargs)


_QUOTIENTS = frozenset([torch.div, torch.true_divide, Tensor.div, Tensor.__truediv__, Tensor.true_divide])


def counts(own: Sequence[int], whole: Sequence[int]) -> Tensor:
    """int64 ``[graphs]``: rows of this worker, which know the rows of all."""
    return _counts(torch.tensor(own), torch.tensor(whole))


def _counts(own: Tensor, whole: Tensor) -> Tensor:
    made: Any = own.as_subclass(Counts)
    made.whole = whole
    return made


class EmptyRows(TorchFunctionMode):
    """Inside, tensors without rows are reshaped as tensors with rows are.

    ``x.view(rows, -1, width)`` is an error where ``rows`` is 0, because -1 could then be any number; here it is what it
    would be with rows.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        if func in _RESHAPES and not kwargs and isinstance(args[0], Tensor) and args[0].shape[:1] == (0,):
            shape = tuple(args[1]) if len(args) == 2 and isinstance(args[1], (tuple, list)) else tuple(args[1:])
            if shape and shape[0] == 0 and -1 in shape:
                args = (args[0], _resolved(args[0].shape[1:], shape))
        return func(*args, **(kwargs or {}))


_RESHAPES = frozenset([Tensor.view, Tensor.reshape, torch.reshape])


def _resolved(features: Sequence[int], shape: Sequence[int]) -> Tuple[int, ...]:
    count = known = 1
    for size in features:
        count *= size
    for size in shape[1:]:
        known *= 1 if size == -1 else size
    return tuple(count // known if size == -1 else size for size in shape) if known else tuple(shape)


# ---- when layers are adapted -------------------------------------------------


def adapt_layers() -> None:
    """Has DGL's layers understand graph managers: now where DGL is imported, else as soon as it is."""
    if _state["adapted"]:
        return
    _state["adapted"] = True
    if sys.modules.get("dgl") is not None:  # None: its import is forbidden
        _adapt()
    else:
        sys.meta_path.insert(0, _Watcher())


_state = {"adapted": False}


def _adapt() -> None:
    from ..interop.dgl import adapt

    adapt()


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for the import of DGL, which many scripts that make a graph never do."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "dgl":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def run(module: Any) -> None:
            execute(module)
            _adapt()

        loader.exec_module = run
        return spec
