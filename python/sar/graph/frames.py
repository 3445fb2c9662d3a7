"""Columns of nodes and edges: ``srcdata``, ``dstdata``, ``ndata`` and ``edata``.

In a full graph sources and destinations are the same nodes, yet ``is_block`` is true, so layers treat them as two sets.
The rules below serve both ways of thinking:

- writing ``srcdata`` or ``ndata``, and the results of ``update_all``, set the column for both sides;
- writing ``dstdata`` sets the destination side and leaves a source column of that name alone, as layers that take a
  pair of features expect;
- reading a column that one side lacks gives the other side's.
"""

from __future__ import annotations

import functools
from collections import UserDict
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, MutableMapping, Tuple, Union

from torch import Tensor

from sar.autograd.message import check_dense
from sar.autograd.types import check_count

Columns = Dict[str, Tensor]


class NodeFrame:
    """The columns of the nodes of one type.

    :param name: node type, for messages
    :param num_src: rows as sources
    :param num_dst: rows as destinations
    :param square: sources and destinations are the same nodes
    """

    def __init__(self, name: str, num_src: int, num_dst: int, square: bool) -> None:
        self.name = name
        self.square = square
        self.src: Columns = {}
        self.dst: Columns = {}
        self.srcdata = DataView(self, "srcdata", self.src, self.dst, num_src)
        self.dstdata = DataView(self, "dstdata", self.dst, self.src, num_dst)
        self.ndata = DataView(self, "ndata", self.dst, self.src, num_dst)

    def snapshot(self) -> Tuple[Columns, Columns]:
        return dict(self.src), dict(self.dst)

    def restore(self, saved: Tuple[Columns, Columns]) -> None:
        for columns, old in zip((self.src, self.dst), saved):
            columns.clear()
            columns.update(old)


class DataView(MutableMapping[str, Tensor]):
    """A dictionary of tensors with one row per node, of one side of a :class:`NodeFrame`."""

    def __init__(self, frame: NodeFrame, label: str, own: Columns, other: Columns, rows: int) -> None:
        self._frame, self._label, self._own, self._other, self._rows = frame, label, own, other, rows

    def _where(self, key: str) -> Columns:
        if key in self._own:
            return self._own
        if self._frame.square and key in self._other:
            return self._other
        raise KeyError(f"no {self._label}[{key!r}]; there are: {', '.join(sorted(self)) or 'none'}")

    def __getitem__(self, key: str) -> Tensor:
        return self._where(key)[key]

    def __setitem__(self, key: str, value: Tensor) -> None:
        check_rows(f"{self._label}[{key!r}]", value, self._rows, f"nodes of type {self._frame.name!r}")
        self._own[key] = value
        if self._frame.square and self._label != "dstdata":
            self._other[key] = value

    def __delitem__(self, key: str) -> None:
        value = self._where(key).pop(key)
        if self._frame.square and (self._label == "ndata" or self._other.get(key) is value):
            self._other.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        if self._frame.square:
            yield from (key for key in list(self._other) if key not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return describe(self)


class EdgeFrame(UserDict[str, Any]):
    """A dictionary of tensors with one row per in-edge of the worker, in ascending edge id.

    Columns that come from files are read when they are first asked for.
    """

    def __init__(self, name: str, rows: int) -> None:
        super().__init__()
        self._name, self._rows = name, rows

    def later(self, key: str, read: Callable[[], Tensor]) -> None:
        """Has ``read`` make the column when it is first asked for: once, also where that is in a ``local_scope``."""
        self.data[key] = functools.cache(read)

    def __getitem__(self, key: str) -> Tensor:
        try:
            column = self.data[key]
        except KeyError:
            raise KeyError(f"no edata[{key!r}]; there are: {', '.join(sorted(self)) or 'none'}") from None
        if not isinstance(column, Tensor):
            self[key] = column = column()
        return column

    def __setitem__(self, key: str, value: Tensor) -> None:
        check_rows(f"edata[{key!r}]", value, self._rows, f"in-edges of relation {self._name!r}")
        self.data[key] = value

    def __repr__(self) -> str:
        return describe(self)

    def snapshot(self) -> Dict[str, Union[Tensor, Callable[[], Tensor]]]:
        return dict(self.data)

    def restore(self, saved: Dict[str, Union[Tensor, Callable[[], Tensor]]]) -> None:
        self.data = saved


class TypedView(MutableMapping[str, Dict[Any, Tensor]]):
    """Columns of several types at once: ``view["h"]`` is ``{type: tensor}`` of the types that have the column."""

    def __init__(self, views: Dict[Any, MutableMapping[str, Tensor]]) -> None:
        self._views = views

    def __getitem__(self, key: str) -> Dict[Any, Tensor]:
        found = {kind: view[key] for kind, view in self._views.items() if key in view}
        if not found:
            raise KeyError(f"no type has the column {key!r}; there are: {', '.join(sorted(self)) or 'none'}")
        return found

    def __setitem__(self, key: str, value: Dict[Any, Tensor]) -> None:
        if not isinstance(value, dict):
            given = type(value).__name__
            raise TypeError(f"this graph has several types: give {key!r} as {{type: tensor}}, not {given}")
        unknown = [kind for kind in value if kind not in self._views]
        if unknown:
            raise KeyError(f"unknown type {unknown[0]!r}; there are: {', '.join(map(str, self._views))}")
        for kind, tensor in value.items():
            self._views[kind][key] = tensor

    def __delitem__(self, key: str) -> None:
        for kind in self[key]:
            del self._views[kind][key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key for view in self._views.values() for key in view))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@contextmanager
def kept_columns(frames: Iterable[Union[NodeFrame, EdgeFrame]]) -> Iterator[None]:
    """Columns set inside are gone afterwards, and those replaced or removed are back."""
    saved: List[Tuple[Any, Any]] = [(frame, frame.snapshot()) for frame in frames]
    try:
        yield
    finally:
        for frame, columns in saved:
            frame.restore(columns)


def is_lazy(value: object) -> bool:
    """Whether a column is an edge tensor whose values have not been computed."""
    return hasattr(value, "materialize")


def check_rows(name: str, value: object, rows: int, what: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch tensor, not {type(value).__name__}")
    check_count(value, rows, what, name)
    check_dense(value, name)
    if value.device.type != "cpu":
        raise TypeError(f"{name} is on {value.device}: graphs work on CPU tensors for now; use .cpu()")


def describe(view: MutableMapping[str, Tensor]) -> str:
    return "{" + ", ".join(f"{key!r}: {view[key].dtype} {tuple(view[key].shape)}" for key in view) + "}"
