"""Numbers drawn by a seed and a number, so that any worker draws the same."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_ROUNDS = 6
_BLOCK = 1 << 15
"""Numbers that are drawn at once: they and what is computed of them stay in the cache."""


def permuted(n: int, seed: int, places: Tensor) -> Tensor:
    """What some places of a permutation of ``0 .. n - 1`` hold, int64.

    A Feistel network permutes a power of 4 of at least n; numbers that leave the range are sent through again.

    :param places: int64 ``[m]``, from 0 to n - 1
    """
    half = np.uint64(max(1, (int(n - 1).bit_length() + 1) // 2))
    keys = mixed(np.arange(_ROUNDS, dtype=np.uint64) + _number(seed))
    found = places.numpy().astype(np.uint64)
    for first in range(0, len(found), _BLOCK):
        block = found[first : first + _BLOCK]
        block[:] = _network(block, half, keys)
        outside = np.flatnonzero(block >= n)
        while len(outside):
            block[outside] = _network(block[outside], half, keys)
            outside = outside[block[outside] >= n]
    return torch.from_numpy(found.astype(np.int64))


def _network(x: np.ndarray, half: np.uint64, keys: np.ndarray) -> np.ndarray:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & mask
    for key in keys:
        left, right = right, left ^ (mixed(right + key) & mask)
    return (left << half) | right


def drawn(n: int, seed: int, keys: Tensor) -> Tensor:
    """A number from 0 to n - 1 for each key, int64 ``[m]``."""
    found = mixed(mixed(keys.numpy().astype(np.uint64)) + _number(seed))
    return torch.from_numpy((found % np.uint64(n)).astype(np.int64))


def _number(seed: int) -> np.ndarray:
    """Seeds that differ by one give numbers that have nothing in common."""
    return mixed(np.array([seed % (1 << 64)], dtype=np.uint64))


def mixed(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
