"""A graph on disk that is to be partitioned, as numpy arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from sar._engine import library
from sar._engine.signatures import Progress

Report = Callable[[int, int], None]
"""Hears how much is done, and of how much."""
_SEEDS = 2**64 - 1


class Dataset:
    """A graph directory, or a graph in an ``.npz`` file. Close it, or use it in a ``with`` statement."""

    def __init__(self, path: str) -> None:
        self._handle = library.call("sar_dataset_open", os.fsencode(path))
        self._describe()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        library.call("sar_dataset_close", self._handle)

    def _describe(self) -> None:
        self.info: dict[str, Any] = library.call("sar_dataset_info", self._handle)
        self.num_nodes: int = self.info["num_nodes"]
        self.num_edges: int = self.info["num_edges"]

    def add_self_loops(self) -> None:
        """Gives every node that lacks one an edge to itself, after the edges of the file.

        :raises ValueError: the graph has several types, or edge features
        """
        library.call("sar_dataset_add_self_loops", self._handle)
        self._describe()

    def adjacency(self, index: Any) -> tuple[np.ndarray, np.ndarray]:
        """The undirected graph without self loops in CSR, after :meth:`undirect`: offsets [num_nodes + 1] and
        neighbours, both of dtype ``index`` (int32 or int64).

        :raises ValueError: the graph has more neighbours than the dtype can count
        """
        offsets = np.empty(self.num_nodes + 1, np.int64)
        length = library.call("sar_dataset_adjacency", self._handle, offsets, None)
        if length > np.iinfo(index).max:
            raise ValueError(
                f"{length} neighbours do not fit {np.dtype(index).name}: a METIS with 64-bit indices is needed"
            )
        neighbours = np.empty(length, index)
        library.call("sar_dataset_adjacency", self._handle, offsets, neighbours)
        return offsets.astype(index, copy=False), neighbours

    def assign(self, method: str, parts: int, seed: int) -> np.ndarray:
        """The part of each node, int32 [num_nodes], by ``"random"`` or ``"contiguous"``."""
        assignment = np.empty(self.num_nodes, np.int32)
        library.call("sar_dataset_assign", self._handle, method, parts, seed & _SEEDS, assignment)
        return assignment

    def weights(self, kind: str, out: np.ndarray) -> None:
        """Fills ``out``, int32 ``[num_nodes]``: ``"edges"``, the in-edges of each node; ``"train"``, 1 where its
        feature train_mask is set, else 0.

        :raises ValueError: the graph has no train_mask
        """
        library.call("sar_dataset_weights", self._handle, kind, out)

    def undirect(self, scratch: str, memory: int, progress: Optional[Report] = None, *, outward: bool = False) -> None:
        """Prepares :meth:`fennel`, :meth:`write_parhip` and :meth:`adjacency`. A graph directory of one type whose
        edges all go both ways is read as it is. Any other graph is sorted in files without names in the directory
        ``scratch``, with ``memory`` bytes and 8 a node; where ``outward``, with each edge at its source alone, as
        :meth:`write_parhip` can write it."""
        _call("sar_dataset_undirect", progress, self._handle, os.fsencode(scratch), memory, int(outward))

    def fennel(
        self,
        assignment: np.ndarray,
        parts: int,
        groups: int,
        imbalance: float,
        seed: int,
        weights: Optional[np.ndarray] = None,
        progress: Optional[Report] = None,
        *,
        rows: bool = False,
    ) -> None:
        """Assigns nodes by streaming.

        :param assignment: int32 ``[num_nodes]``. Before: ``-1 - group`` of each node, which gets one of the parts of
            that group, ``parts / groups`` in a row. After: its part.
        :param weights: int32 ``[kinds, num_nodes]``; of each kind, no part has more than ``1 + imbalance`` times the
            mean, where that can be
        :param rows: few rows are to travel, in place of few edges between parts
        """
        numbers = parts, groups, imbalance, seed & _SEEDS, int(rows)
        _call("sar_dataset_fennel", progress, self._handle, *numbers, weights, assignment)

    def write_parhip(
        self, path: str, weights: Optional[np.ndarray], assignment: Optional[np.ndarray] = None, part: int = 0
    ) -> tuple[int, int]:
        """Writes the undirected graph to an existing file in ParHIP's binary format; where there is an assignment, the
        nodes of one part and the edges among them.

        :return: nodes and neighbours in the file; an edge is two neighbours
        """
        nodes, neighbours = library.call(
            "sar_dataset_parhip", self._handle, os.fsencode(path), weights, assignment, part
        )
        return nodes, neighbours

    def quality(self, assignment: np.ndarray, parts: int) -> dict[str, Any]:
        """Cut edges, balance, and ``boundary[p][q]``: the rows of q that p reads."""
        return library.call("sar_dataset_quality", self._handle, assignment, parts)

    def write_parts(
        self,
        assignment: np.ndarray,
        parts: int,
        directory: str,
        options: dict[str, Any],
        progress: Optional[Report] = None,
    ) -> None:
        """Writes ``directory/<name>.json`` and ``directory/part<i>/``.

        :param options: those of ``sar_dataset_write_parts``, as sar.h has them
        """
        given = assignment, parts, os.fsencode(directory), json.dumps(options)
        _call("sar_dataset_write_parts", progress, self._handle, *given)

    def least_memory(self, parts: int, format: str) -> int:
        """The least ``memory`` option of :meth:`write_parts` for parts of equal sizes."""
        return library.call("sar_dataset_least_memory", self._handle, parts, format)


def _call(name: str, progress: Optional[Report], *arguments: Any) -> None:
    """Calls a function whose last arguments are those of its progress. An exception in ``progress``, which may be that
    of Ctrl-C, ends the call and is raised."""
    raised: list[BaseException] = []

    def report(_: object, done: int, total: int) -> int:
        try:
            if progress is not None:
                progress(done, total)
        except BaseException as error:
            raised.append(error)
        return len(raised)

    try:
        library.call(name, *arguments, Progress(report), None)
    except RuntimeError:
        if not raised:
            raise
    if raised:
        raise raised[0]
