"""Small graphs, and how they fall to workers.

Node ids are already in the order of partitions: rank p owns ``start[p] .. start[p + 1] - 1``. Edge ids are positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Graph(NamedTuple):
    """A graph split over workers."""

    num_nodes: int
    src: np.ndarray
    dst: np.ndarray
    start: np.ndarray

    @property
    def world(self) -> int:
        return len(self.start) - 1

    def rows(self, rank: int) -> slice:
        """Own nodes of a rank."""
        return slice(int(self.start[rank]), int(self.start[rank + 1]))

    def edges(self, rank: int) -> np.ndarray:
        """Ids of the in-edges of own nodes, ascending."""
        low, high = self.start[rank], self.start[rank + 1]
        return np.flatnonzero((self.dst >= low) & (self.dst < high))

    def part(self, rank: int) -> dict[str, Any]:
        """What a rank needs to build its part."""
        mine = self.edges(rank)
        return {"start": self.start, "src": self.src[mine], "dst": self.dst[mine]}

    def shares(
        self, edges: dict[str, Any] | None = None, ranks: dict[str, Any] | None = None, **nodes: Any
    ) -> list[dict[str, Any]]:
        """What each rank is given: its part, its rows of what nodes and edges have, and what is its own.

        :param edges: arrays with a row for each edge, or lists or dicts of such; None stays None. So are those of nodes
        :param ranks: of each of these a rank gets the element with its number
        """
        return [
            {
                "part": self.part(rank),
                **{name: _cut(value, self.rows(rank)) for name, value in nodes.items()},
                **{name: _cut(value, self.edges(rank)) for name, value in (edges or {}).items()},
                **{name: values[rank] for name, values in (ranks or {}).items()},
            }
            for rank in range(self.world)
        ]

    def of_dgl(self) -> Any:
        """All of it in DGL."""
        import dgl
        import torch

        return dgl.graph((torch.from_numpy(self.src), torch.from_numpy(self.dst)), num_nodes=self.num_nodes)


def _cut(value: Any, where: Any) -> Any:
    if isinstance(value, dict):
        return {name: one[where] for name, one in value.items()}
    return [one[where] for one in value] if isinstance(value, list) else None if value is None else value[where]


KINDS = ["random", "empty_worker", "no_edges_between", "one_node", "no_edges", "hub"]


def make(kind: str, world: int, seed: int = 0) -> Graph:
    """One of :data:`KINDS` for ``world`` workers."""
    rng = np.random.default_rng(seed + 1000 * world)
    n, e = 61, 400
    cuts = np.sort(rng.integers(0, n + 1, world - 1))
    if kind == "empty_worker" and world > 1:
        cuts[rng.integers(0, world - 1)] = 0 if rng.integers(0, 2) else n
        cuts = np.sort(cuts)
    if kind == "one_node":
        n, cuts = 1, np.sort(rng.integers(0, 2, world - 1))
    start = np.concatenate([[0], cuts, [n]]).astype(np.int64)
    if kind == "one_node":
        src = dst = np.zeros(2, np.int64)  # two parallel self loops
    elif kind == "no_edges":
        src = dst = np.zeros(0, np.int64)
    elif kind == "hub":
        src = np.concatenate([rng.integers(0, n, 300), np.full(100, n // 2)])
        dst = np.concatenate([np.full(300, n // 2), rng.integers(0, n, 100)])
    elif kind == "no_edges_between":
        owner = rng.choice(np.flatnonzero(np.diff(start)), e)
        size = np.diff(start)[owner]
        src = start[owner] + rng.integers(0, 1 << 30, e) % size
        dst = start[owner] + rng.integers(0, 1 << 30, e) % size
    else:
        busy = rng.choice(n, n - 12, replace=False)  # the other nodes are isolated
        src, dst = rng.choice(busy, e), rng.choice(busy, e)
        src[:20], dst[:20] = src[20:40], dst[20:40]  # parallel edges
        src[40:50] = dst[40:50]  # self loops
    order = rng.permutation(len(src))
    return Graph(n, src[order].astype(np.int64), dst[order].astype(np.int64), start)


def close(actual: Any, expected: Any, what: str, loose: float = 1.0, floor: float = 0.0) -> None:
    """Element by element: 1e-12 in double precision, 1e-5 in single, relative to 1 or the largest element nearby.

    :param loose: so many times as much is allowed
    :param floor: so much is allowed everywhere, for what is rounding error alone in the oracle too
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype}, expected {expected.dtype}"
    if expected.size == 0:
        return
    unit = 1e-5 if expected.dtype == np.float32 else 1e-12
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    atol = max(loose * unit * scale, floor)
    np.testing.assert_allclose(actual, expected, rtol=loose * unit, atol=atol, err_msg=what)
