"""Dropout of rows of nodes, drawn again in backward instead of saved.

Whether an element is dropped follows from a seed, from what its row is known by and from its column. Rows of a graph
that a module was prepared for are known by node type, and by the original ids of their nodes where the partition has
them, else by the ids that it gave them. With original ids, and a seed that all workers agree on, a node's row loses the
same elements for any number of workers. Rows of no known graph are known by rank and position.

What a tensor has rows of is told by how many each worker has. On one worker alone two node types may have as many.
"""

from __future__ import annotations

import itertools
from functools import cache, cached_property
from typing import Any, Callable, NamedTuple, Optional, Sequence
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from sar._engine import columns, session as _session


class Keys:
    """What dropout knows rows by.

    :param first: of the rows, if they are known by consecutive numbers
    :param read: gives integers ``[n]`` otherwise, when they are first needed; below 2**48
    :param kind: number of the node type, below 2**15: rows of two types do not draw the same numbers
    """

    def __init__(self, first: int, read: Optional[Callable[[], Tensor]] = None, kind: int = 0) -> None:
        self._kind = kind << 48
        self._first, self._read = first + self._kind, read
        self.number = next(_numbers)
        _known[self.number] = self

    def of(self, first: int, count: int) -> tuple[Optional[Tensor], int]:
        """Ids of some of the rows, or None and the number of the first."""
        if self._read is None:
            return None, self._first + first
        return self._ids[first : first + count], 0

    @cached_property
    def _ids(self) -> Tensor:
        assert self._read is not None
        return (self._read().to(torch.int64) + self._kind).contiguous()


_numbers = itertools.count()
_known: WeakValueDictionary[int, Keys] = WeakValueDictionary()


def keys_of(graph: Any, rows: int, everywhere: Optional[Sequence[int]] = None) -> Keys:
    """What so many own rows are known by.

    :param graph: whose nodes they are, a graph or an edge index of one, or None
    :param everywhere: how many every worker has, if the graph has :func:`several_types`. Of types with equally many on
        every worker it is the first
    """
    state = _state_of(graph)
    if state is not None:
        for number, (kind, nodes) in enumerate(state.nodes.items()):
            alike = everywhere is None or [b - a for a, b in zip(nodes.starts, nodes.starts[1:])] == list(everywhere)
            if nodes.num_src == rows and alike:
                if kind not in state.row_keys:
                    state.row_keys[kind] = Keys(nodes.first, state.node_keys.get(kind), number)
                found: Keys = state.row_keys[kind]
                return found
    session = _session.peek()
    return _by_position(0 if session is None else session.rank)


def several_types(graph: Any) -> bool:
    """Whether a graph, or that of an edge index, has nodes of several types. All workers agree on it."""
    state = _state_of(graph)
    return state is not None and len(state.nodes) > 1


def _state_of(graph: Any) -> Any:
    """The state of a full graph; None of others."""
    for store in getattr(graph, "edge_stores", ())[:1]:  # a data object of PyG
        graph = store.get("edge_index")
    state = getattr(getattr(graph, "graph", graph), "_state", None)
    return None if state is None or state.keep_seeds is not None else state


@cache
def _by_position(rank: int) -> Keys:
    return Keys(rank << 40)


class Drop(NamedTuple):
    """What is dropped of rows: ``share`` of their elements, from 0 to 1."""

    share: float
    seed: int
    keys: Keys

    def of(self, first: int, count: int) -> columns.Dropout:
        """The same of some of the rows, as the engine takes it."""
        return columns.Dropout(self.share, self.seed, *self.keys.of(first, count))

    def apply(self, rows: Tensor) -> Tensor:
        """Of all rows, ``[n, ...]``, or the gradient, in new memory."""
        rows = rows.contiguous()
        out = torch.empty_like(rows)
        columns.normalize(rows.flatten(1), None, False, self.of(0, len(rows)), out.flatten(1))
        return out

    @staticmethod
    def known(share: float, seed: int, number: int) -> Drop:
        """That of keys with a number.

        :raises RuntimeError: the graph whose rows were dropped is gone
        """
        keys = _known.get(number)
        if keys is None:
            raise RuntimeError("backward of dropout needs the graph whose rows were dropped, and that is gone")
        return Drop(share, seed, keys)


class Draws:
    """The dropouts of one tensor, one after the other.

    :param seed: the same on all workers; None: each dropout draws one from this worker's torch generator
    """

    def __init__(self, keys: Keys, seed: Optional[int]) -> None:
        self.keys, self._seed = keys, seed
        self._count = 0

    def next(self, share: float) -> Drop:
        if self._seed is None:
            return Drop(share, int(torch.randint(1 << 62, ())), self.keys)
        self._count += 1
        return Drop(share, self._seed + self._count, self.keys)
