"""The data sets that ship with the examples, split over workers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tests.support import ROOT
from tests.support.graphs import Graph

DATA = ROOT / "examples" / "data"
MOST_FEATURES = 1433
"""Of more columns the fullest are kept, so that the dense layers do not take all the time."""


@lru_cache(maxsize=1)  # the next number of workers wants the same
def read(name: str, features: int) -> tuple[np.ndarray, ...]:
    with np.load(DATA / f"{name}.npz") as file:
        src, dst = file["edge_index"].astype(np.int64)
        x, y = file["x"], file["y"]
        masks = np.stack([file[f"{m}_mask"] for m in ("train", "test")])
    x = x[:, np.sort(np.argsort(-x.sum(0, dtype=np.float64), kind="stable")[:features])].astype(np.float64)
    return src, dst, x, y, masks


class DataSet:
    """A data set whose nodes were dealt to workers at random, and renumbered so that each owns a range."""

    def __init__(self, name: str, world: int, self_loops: bool, features: int) -> None:
        src, dst, x, y, masks = read(name, features)
        n = len(y)
        if self_loops:
            src, dst = np.concatenate([src, np.arange(n)]), np.concatenate([dst, np.arange(n)])
        owner = np.random.default_rng(17).integers(0, 8, n) % world
        order = np.argsort(owner, kind="stable")
        new_id = np.empty(n, np.int64)
        new_id[order] = np.arange(n)
        start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=world))])
        self.graph = Graph(n, new_id[src], new_id[dst], start)
        self.x = (x / np.maximum(x.sum(1, keepdims=True), 1))[order]
        self.y, self.masks = y[order], masks[:, order]
        self.classes, self.n_train = int(y.max()) + 1, int(masks[0].sum())

    def arguments(self, dtype: str) -> list[dict[str, Any]]:
        return self.graph.shares(x=self.x.astype(dtype), y=self.y, masks=list(self.masks))
