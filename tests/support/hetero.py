"""A graph of 4 node types and 8 relations, two names of which serve two relations each, and how it falls to workers."""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = {"author": 30, "field": 9, "paper": 40, "venue": 7}
TRIPLES = [
    ("author", "near", "author"),
    ("author", "writes", "paper"),
    ("field", "near", "field"),
    ("paper", "cites", "paper"),
    ("paper", "in", "field"),
    ("paper", "in", "venue"),
    ("paper", "rev_writes", "author"),
    ("venue", "has", "paper"),
]


def edges(few: bool = True, seed: int = 0) -> dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]:
    """Ends of the edges of each relation, ids per type; parallel edges.

    :param few: some relations have so few edges that workers are without. DGL's partitioner cannot cut such a graph
    """
    rng = np.random.default_rng(seed)
    found = {}
    for n, (source, relation, target) in enumerate(TRIPLES):
        count = ([60, 90, 3, 150, 20, 25, 70, 2] if few else [60, 90, 70, 150, 60, 65, 70, 60])[n]
        src, dst = rng.integers(0, KINDS[source], count), rng.integers(0, KINDS[target] - 1, count)
        src[1:2], dst[1:2] = src[:1], dst[:1]
        found[source, relation, target] = (src, dst)
    return found


def features(seed: int, width: int = 6) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {kind: rng.standard_normal((n, width)) for kind, n in KINDS.items()}


class Cut:
    """The nodes of each type on each worker, and partition data as workers take it. Some own no node of a type."""

    def __init__(self, world: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.world = world
        self.owner = {kind: rng.integers(0, world, n) for kind, n in KINDS.items()}
        if world > 1:
            self.owner["venue"][self.owner["venue"] == 1] = 0  # a type without nodes on a worker
        if world > 2:
            for owner in self.owner.values():  # a worker without nodes
                owner[owner == 2] = 0
        self.nodes = {kind: np.argsort(owner, kind="stable") for kind, owner in self.owner.items()}
        counts = np.array([np.bincount(self.owner[kind], minlength=world) for kind in KINDS])
        self.counts = counts
        self.start = np.concatenate([[0], counts.sum(0).cumsum()])
        self.ids = {}  # over all types, by original id
        for n, (kind, owner) in enumerate(self.owner.items()):
            first = self.start[:-1] + counts[:n].sum(0)
            self.ids[kind] = np.empty(KINDS[kind], np.int64)
            for p in range(world):
                mine = np.flatnonzero(owner == p)
                self.ids[kind][mine] = first[p] + np.arange(len(mine))

    def rows(self, kind: str, rank: int) -> np.ndarray:
        """Original ids of a worker's nodes, in its order."""
        return np.flatnonzero(self.owner[kind] == rank)

    def held(self, triple: tuple[str, str, str], ends: Any, rank: int) -> np.ndarray:
        """Positions of the in-edges of a worker's nodes."""
        return np.flatnonzero(self.owner[triple[2]][ends[triple][1]] == rank)

    def part(self, rank: int, ends: Any) -> dict[str, Any]:
        src, dst, kind = [], [], []
        for n, triple in enumerate(TRIPLES):
            mine = self.held(triple, ends, rank)
            src.append(self.ids[triple[0]][ends[triple][0][mine]])
            dst.append(self.ids[triple[2]][ends[triple][1][mine]])
            kind.append(np.full(len(mine), n, np.int32))
        return {
            "start": self.start.astype(np.int64),
            "src": np.concatenate(src),
            "dst": np.concatenate(dst),
            "etype": np.concatenate(kind),
            "ntype": np.repeat(np.arange(len(KINDS), dtype=np.int32), self.counts[:, rank]),
            "types": (list(KINDS), TRIPLES),
        }


def save(path: Any, ends: Any, x: dict[str, np.ndarray], w: np.ndarray) -> None:
    """The graph as an ``.npz`` file; fields have no features, and say how many they are."""
    arrays: dict[str, Any] = {}  # types are in the order in which arrays name them first
    for kind in KINDS:
        name, values = ("num_nodes", np.array(KINDS[kind])) if kind == "field" else ("x", x[kind])
        arrays[f"{kind}/{name}"] = values
    arrays |= {f"{':'.join(t)}/edge_index": np.stack(e) for t, e in ends.items()}
    arrays["paper/train_mask"] = np.arange(KINDS["paper"]) % 3 == 0
    arrays["paper:cites:paper/w"] = w
    np.savez(path, **arrays)
