"""Weights of nodes, by which parts are balanced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from .dataset import Dataset


def kinds(dataset: Dataset, balance: Sequence[str]) -> Optional[np.ndarray]:
    """One row for each kind of ``balance``, int32 ``[kinds, nodes]``; None where nodes alone count.

    :raises ValueError: no node of the graph has a mark for training
    """
    if tuple(balance) == ("nodes",):
        return None
    rows = np.empty((len(balance), dataset.num_nodes), np.int32)
    for row, kind in zip(rows, balance):
        if kind == "nodes":
            row[:] = 1
        else:
            dataset.weights(kind, row)
    return rows


def combined(dataset: Dataset, balance: Sequence[str], dtype: Any = np.int32) -> Optional[np.ndarray]:
    """One weight a node, for partitioners that balance one: a node of average weight in each kind has 8 for each.
    None where nodes alone count."""
    rows = kinds(dataset, balance)
    if rows is None:
        return None
    total = np.zeros(dataset.num_nodes, np.float32)
    for row in rows:
        total += row / np.float32(max(row.mean(dtype=np.float64), 1e-30))
    return np.maximum(np.rint(8 * total), 1).astype(dtype)
