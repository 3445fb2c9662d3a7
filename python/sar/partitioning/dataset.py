"""A graph on disk that is to be partitioned, as numpy arrays."""

from __future__ import annotations

import ctypes as ct
import os
from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from sar._engine import abi, library
from sar._engine.signatures import Progress


class Dataset:
    """A graph directory, or a graph in an ``.npz`` file. Close it, or use it in a ``with`` statement."""

    def __init__(self, path: str) -> None:
        handle = ct.c_uint64()
        library.call("sar_dataset_open", os.fsencode(path), ct.byref(handle))
        self._handle = handle
        self._describe()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        library.call("sar_dataset_close", self._handle)

    def _describe(self) -> None:
        self.info: dict[str, Any] = library.json_call("sar_dataset_info", self._handle)
        self.num_nodes: int = self.info["num_nodes"]
        self.num_edges: int = self.info["num_edges"]

    def add_self_loops(self) -> None:
        """Gives every node that lacks one an edge to itself, after the edges of the file.

        :raises ValueError: the graph has several types, or edge features
        """
        library.call("sar_dataset_add_self_loops", self._handle)
        self._describe()

    def adjacency(self, index: Any) -> tuple[np.ndarray, np.ndarray]:
        """The undirected graph without self loops in CSR: offsets [num_nodes + 1] and neighbours, both of dtype
        ``index`` (int32 or int64).

        :raises ValueError: the graph has more neighbours than the dtype can count
        """
        length = ct.c_int64()
        offsets = np.empty(self.num_nodes + 1, np.int64)
        library.call("sar_dataset_adjacency", self._handle, _view(offsets), None, ct.byref(length))
        if length.value > np.iinfo(index).max:
            raise ValueError(
                f"{length.value} neighbours do not fit {np.dtype(index).name}: a METIS with 64-bit indices is needed"
            )
        neighbours = np.empty(length.value, index)
        library.call("sar_dataset_adjacency", self._handle, _view(offsets), _view(neighbours), ct.byref(length))
        return offsets.astype(index, copy=False), neighbours

    def assign(self, method: str, parts: int, seed: int) -> np.ndarray:
        """The part of each node, int32 [num_nodes], by ``"random"`` or ``"contiguous"``."""
        assignment = np.empty(self.num_nodes, np.int32)
        library.call(
            "sar_dataset_assign",
            self._handle,
            method.encode(),
            ct.c_int32(parts),
            ct.c_uint64(seed & (2**64 - 1)),
            _view(assignment),
        )
        return assignment

    def quality(self, assignment: np.ndarray, parts: int) -> dict[str, Any]:
        """Cut edges, balance, and ``boundary[p][q]``: the rows of q that p reads."""
        result: dict[str, Any] = library.json_call(
            "sar_dataset_quality", self._handle, _view(assignment), ct.c_int32(parts)
        )
        return result

    def write(
        self,
        assignment: np.ndarray,
        parts: int,
        directory: str,
        name: str,
        method: str,
        progress: Optional[Callable[[int, int], None]] = None,
    ) -> None:
        """Writes DGL's partition format: ``directory/name.json`` and ``directory/part<i>/``."""
        report = Progress(lambda user, done, total: progress(done, total)) if progress else Progress()
        library.call(
            "sar_dataset_write",
            self._handle,
            _view(assignment),
            ct.c_int32(parts),
            os.fsencode(directory),
            name.encode(),
            method.encode(),
            report,
            None,
        )


def partition_info(path: str, part: int) -> dict[str, Any]:
    """What one part of a partition directory holds."""
    handle = abi.partition_open(path, part)
    try:
        return abi.partition_info(handle)
    finally:
        abi.partition_close(handle)


def _view(array: np.ndarray) -> Any:
    return ct.byref(library.tensor(array))
