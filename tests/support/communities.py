"""A graph of communities as a directory, and what `sar partition` makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NODES, COMMUNITIES = 1200, 12
HOMOGENEOUS = ("_N", "_E", "_N")


def community_edges(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Edges in both directions, without repetitions: 7 in 10 stay in a community, 2 more among the communities with
    even, or with odd, numbers."""
    rng = np.random.default_rng(seed)
    u = rng.integers(0, NODES, 10 * NODES)
    near = rng.integers(0, NODES // COMMUNITIES, len(u)) * COMMUNITIES + u % COMMUNITIES
    alike = rng.integers(0, NODES // 2, len(u)) * 2 + u % 2
    kind = rng.random(len(u))
    v = np.where(kind < 0.7, near, np.where(kind < 0.9, alike, rng.integers(0, NODES, len(u))))
    key = np.unique(np.concatenate([u * NODES + v, v * NODES + u]))
    return key // NODES, key % NODES


def parts_of(out: Path, parts: int) -> np.ndarray:
    """The part of each node, read out of the written partition."""
    import torch

    import sar as package

    found = np.full(NODES, -1)
    for part in range(parts):
        data = package.load_dgl_partition_data(out, part, torch.device("cpu"))
        found[package.suffix_key_lookup(data.node_features, "orig_id").numpy()] = part
    assert (found >= 0).all()
    return found


def cut(parts: np.ndarray) -> float:
    src, dst = community_edges()
    return float((parts[src] != parts[dst]).mean())
