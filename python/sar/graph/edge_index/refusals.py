"""Functions of torch that would read the numbers of an edge index: which are not refused, and what to do instead.

The numbers on a worker are its own: columns of sources and rows of destinations. What a function makes of them is not
what it makes of the numbers of the whole graph, so all functions are refused but those that have a handler
(:mod:`sar.graph.edge_index.rows`) or are in :data:`QUIET`. On one worker they are refused too: a script that runs there
runs on several.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any, Callable, Dict, Optional, Set, Tuple

import torch
from torch import Tensor

from sar.errors import WholeGraphError
from sar.graph.edge_tensor.functions import METADATA, OF_HOOKS, changes
from sar.graph.refused import library_call, refusal

QUIET = METADATA | OF_HOOKS | {Tensor.requires_grad.__set__, Tensor.is_contiguous, Tensor.stride, Tensor.is_pinned}  # type: ignore[attr-defined]
"""Functions that read no number."""

_NUMBERS = (
    "edge_index.numbers() has the numbers of this worker (columns of graph.column_nodes(), and own rows), and "
    "data.n_id[edge_index[0]] the original ids of the nodes that edges begin at"
)
_AS_IT_IS = "layers take the edge index as it is, int64 [2, in-edges of own nodes]"
_SCATTER = (
    "torch_geometric.utils.scatter(messages, edge_index[1], 0, num_nodes, reduce) reduces by sum, mean, max and min, "
    "and so do Tensor.index_add(0, ...) and scatter_add for sums"
)
_PICK = "edges are picked by a mask, edge_index[:, mask], bool with an entry for each in-edge of own nodes"
_GATHER = "x[edge_index[0]] gives the rows of nodes at the ends of edges"
_COUNT = "data.num_nodes counts own nodes, and torch_geometric.utils.degree(edge_index[1], num_nodes) their edges"

WAYS: Dict[str, str] = {
    **dict.fromkeys(["int", "short", "float", "double", "half", "to", "type", "type_as", "cuda", "byte"], _AS_IT_IS),
    **dict.fromkeys(["t", "T", "mT", "transpose", "permute", "swapaxes", "movedim"], f"{_AS_IT_IS}; flip(0) turns it"),
    **dict.fromkeys(["view", "reshape", "flatten", "ravel"], _AS_IT_IS),
    **dict.fromkeys(["__getitem__", "narrow", "masked_select", "chunk", "split"], _PICK),
    **dict.fromkeys(["scatter", "scatter_", "scatter_reduce", "scatter_reduce_", "index_put", "index_put_"], _SCATTER),
    **dict.fromkeys(["__setitem__", "index_fill", "index_fill_", "index_copy", "index_copy_"], _SCATTER),
    **dict.fromkeys(["index_add", "index_add_", "index_reduce", "index_reduce_", "scatter_add_"], _SCATTER),
    **dict.fromkeys(["gather", "take", "take_along_dim", "embedding", "index_select"], _GATHER),
    **dict.fromkeys(["max", "min", "amax", "amin", "aminmax", "unique", "bincount", "one_hot"], _COUNT),
}
"""What to do in place of functions, by name."""

_LIBRARY = (
    "apply it to the whole graph before it is partitioned, and keep what it gives as columns of nodes or edges. Layers "
    "and functions of edges take the edge index as it is"
)


def refused(func: Any, args: Any) -> WholeGraphError:
    """The error of a function of torch.

    Where a function of PyG reads numbers while it handles an error, that one says more: it is given in place.
    """
    pending = sys.exc_info()[1]
    called = library_call()
    if called and isinstance(pending, Exception):
        raise pending
    if changes(func) and args and hasattr(args[0], "numbers"):
        instead = "it holds no numbers, and would be changed. Change the graph before it is partitioned"
    else:
        instead = _LIBRARY if called else WAYS.get(_bare(func), _NUMBERS)
    return refusal(f"{name_of(func)} of an edge index", instead)


def _bare(func: Any) -> str:
    """The name without the module; of an attribute, that of the attribute."""
    name = str(getattr(func, "__name__", func))
    return str(func.__self__.__name__) if name in ("__get__", "__set__") else name


def name_of(func: Any) -> str:
    """What users call a function of torch."""
    bare = _bare(func)
    if isinstance(func, torch._ops.OpOverload):
        return f"torch.ops.{func}"
    if getattr(torch.nn.functional, bare, None) is func:
        return f"torch.nn.functional.{bare}"
    return f"torch.{bare}" if getattr(torch, bare, None) is func else f"Tensor.{bare}"


# ---- functions of other libraries that would take the edges of one worker for all edges of a graph -------------------
#
# Nothing is put in their place, since modules that hold a function hold it under any name. It is the tensors that
# refuse: they look for the function among the callers of torch's functions.

_refused: Dict[Tuple[str, str], Optional[Tuple[str, str]]] = {}
"""Name of the file and of the code, which torch.compile leaves as they are: what is refused, and what to do instead;
None where what it calls is allowed."""
_names: Set[str] = set()


def refuse_in(function: Callable[..., Any], name: str, instead: str) -> None:
    """Has tensors of edge indices raise :class:`sar.WholeGraphError` in a function, and in all that it calls.

    :param name: what users call it
    :param instead: what to do in place of it
    """
    code = inspect.unwrap(function).__code__
    _refused[code.co_filename, code.co_name] = name, instead
    _names.add(code.co_name)


def allow_in(function: Callable[..., Any]) -> None:
    """Lets a function call what :func:`refuse_in` refuses."""
    code = function.__code__
    _refused[code.co_filename, code.co_name] = None
    _names.add(code.co_name)


def refuse_nowhere() -> None:
    """Undoes all of :func:`refuse_in`."""
    _refused.clear()
    _names.clear()


def check_readers() -> None:
    """Raises :class:`sar.WholeGraphError` where a function runs that must not read edge indices. Of several, it names
    the one that called the others."""
    frame: Optional[FrameType] = sys._getframe(1)
    found: Optional[Tuple[str, str]] = None
    while frame is not None:
        code = frame.f_code
        if code.co_name in _names:
            found = _refused.get((code.co_filename, code.co_name), found)
        frame = frame.f_back
    if found is not None:
        raise WholeGraphError(*found)
