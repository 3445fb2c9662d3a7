"""Views of the rows of an edge index in other shapes, as functions want them that take an index for every number:
``col.view(-1, 1).expand(-1, features)`` and the other ways to write it.

One dimension is that of edges, and along the others all is the same. torch finds out where that dimension goes, on a
tensor without data of which it is the only one with a stride.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch
from torch import Tensor

from .loops import LoopMask
from .reduce import check_graph
from .rows import EdgeEnds

EDGES = 1009
"""Stands for the number of edges in tensors without data."""


def _viewed(func: Callable[..., Any]) -> Callable[..., Any]:
    def handler(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, EdgeEnds) or any(isinstance(a, Tensor) for a in [*args, *kwargs.values()]):
            return NotImplemented
        shape = list(input.shape)
        shape[input.place] = EDGES
        strides = [int(n == input.place) for n in range(len(shape))]
        try:
            found = func(torch.empty_strided(shape, strides, device="meta"), *args, **kwargs)
        except (RuntimeError, IndexError, TypeError):
            return NotImplemented  # torch says what is wrong
        places = [n for n, size in enumerate(found.shape) if size == EDGES and found.stride(n) == 1]
        same = [found.stride(n) == 0 or found.shape[n] == 1 for n in range(found.dim()) if n not in places]
        if len(places) != 1 or not all(same):
            return NotImplemented
        return _at(input, found.shape, places[0])

    return handler


def _at(input: EdgeEnds, shape: Sequence[int], place: int) -> EdgeEnds:
    sizes = [*shape[:place], input.edges.num_edges, *shape[place + 1 :]]
    return EdgeEnds(input.edges, input.side, sizes, place)


def _sizes(args: Sequence[Any], kwargs: Any) -> Optional[List[int]]:
    given: Any = [*args, *kwargs.values()]
    given = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    return list(given) if all(isinstance(size, int) for size in given) else None


def _sized(func: Callable[..., Any]) -> Callable[..., Any]:
    """Functions that take the sizes of their result, in which the number of edges may be written out."""
    view = _viewed(func)

    def handler(input: Any, *args: Any, **kwargs: Any) -> Any:
        sizes = _sizes(args, kwargs) if isinstance(input, EdgeEnds) else None
        if sizes is None:
            return NotImplemented
        edges = input.edges.num_edges
        if func in EXPANDS:
            place = len(sizes) - Tensor.dim(input) + input.place
            known = 0 <= place < len(sizes) and sizes[place] in (-1, edges)
        else:
            others = [n for n, size in enumerate(sizes) if size != 1] or [0]
            place, known = others[0], -1 in sizes or (len(others) == 1 and sizes[others[0]] == edges)
        if not known:
            return NotImplemented
        if -1 not in sizes or func in EXPANDS:
            sizes[place] = EDGES
        return view(input, sizes)

    return handler


EXPANDS = (Tensor.expand, torch.broadcast_to, Tensor.broadcast_to)


def _as_other(input: Any, other: Any) -> Any:
    """``expand_as``: the shape of messages, or of numbers that have one for each edge."""
    if not isinstance(input, EdgeEnds):
        return NotImplemented
    check_graph(input.edges, other)
    return EdgeEnds.handlers[Tensor.expand](input, tuple(other.shape))


def _repeat(func: Callable[..., Any]) -> Callable[..., Any]:
    def handler(input: Any, *args: Any, **kwargs: Any) -> Any:
        times = _sizes(args, kwargs) if isinstance(input, EdgeEnds) else None
        if times is None:
            return NotImplemented
        n = Tensor.dim(input)
        times = [1] * (n - len(times)) + times
        place = len(times) - n + input.place
        if times[place] != 1:
            return NotImplemented
        sizes = [1] * (len(times) - n) + list(input.shape)
        return _at(input, [size * t for size, t in zip(sizes, times)], place)

    return handler


for _name in ("view", "reshape", "expand", "broadcast_to", "repeat", "tile"):
    for _owner in (Tensor, torch):
        _func = getattr(_owner, _name, None)
        if _func is not None:
            EdgeEnds.handlers[_func] = (_repeat if _name in ("repeat", "tile") else _sized)(_func)
for _name in ("unsqueeze", "squeeze", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t"):
    for _owner in (Tensor, torch):
        EdgeEnds.handlers[getattr(_owner, _name)] = _viewed(getattr(_owner, _name))
for _name in ("T", "mT"):
    EdgeEnds.handlers[getattr(Tensor, _name).__get__] = _viewed(getattr(Tensor, _name).__get__)
EdgeEnds.handlers[Tensor.expand_as] = _as_other
_lifted_rows, _item = EdgeEnds.handlers[Tensor.__getitem__], _viewed(Tensor.__getitem__)


def _getitem(input: Any, index: Any) -> Any:
    if not isinstance(input, EdgeEnds):
        return _lifted_rows(input, index)
    mask = index.numbers() if isinstance(index, LoopMask) else index
    if type(mask) is Tensor and mask.dtype == torch.bool:
        sources, rows = input.edges.numbers()[:, mask]
        return rows if torch.equal(sources, rows) else NotImplemented  # self loops begin and end at own nodes
    return _item(input, index)


EdgeEnds.handlers[Tensor.__getitem__] = _getitem
