"""Graphs with what may go wrong, and what is computed of them by dense matrices."""

from __future__ import annotations

import numpy as np

from tests.links.graphs import Cut, cut
from tests.support.graphs import Graph

NODES, ISOLATED = 70, 5


def undirected(world: int) -> Cut:
    """Several components, isolated nodes and self loops; the last worker has no nodes."""
    rng = np.random.default_rng(8)
    one, other = rng.integers(0, 50, (2, 90)), rng.integers(50, NODES - ISOLATED, (2, 40))
    ends = np.concatenate([one, other], 1)
    pairs = np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1)
    assert (pairs[0] == pairs[1]).any()
    return cut_as(Graph(NODES, pairs[0], pairs[1], np.array([0, NODES])), world)


def directed(world: int) -> Cut:
    """Parallel edges, self loops and nodes without out-edges; the last worker has no nodes."""
    some = cut(1)
    keep = some.whole.src < 50
    return cut_as(some.whole._replace(src=some.whole.src[keep], dst=some.whole.dst[keep]), world)


def cut_as(whole: Graph, world: int) -> Cut:
    rng = np.random.default_rng(world)
    ids = rng.permutation(whole.num_nodes)
    start = np.sort(rng.integers(0, whole.num_nodes, world - 1))
    start[-1:] = whole.num_nodes
    place = ids.argsort()
    start = np.concatenate([[0], start, [whole.num_nodes]])
    return Cut(Graph(whole.num_nodes, place[whole.src], place[whole.dst], start), ids, whole)


def weights(graph: Graph) -> np.ndarray:
    """The same for an edge and its reverse."""
    found: np.ndarray = 0.25 + (graph.src * graph.dst % 7) / 3
    return found


def matrix(graph: Graph, weight: np.ndarray | None = None) -> np.ndarray:
    found = np.zeros((graph.num_nodes, graph.num_nodes))
    np.add.at(found, (graph.src, graph.dst), 1 if weight is None else weight)
    return found


def laplacian(adjacency: np.ndarray, normalization: str | None = "sym", self_loops: bool = False) -> np.ndarray:
    """As PyG defines it."""
    a = adjacency if self_loops else adjacency - np.diag(adjacency.diagonal())
    degrees = a.sum(1)
    if normalization is None:
        return np.asarray(np.diag(degrees) - a)
    inverse = np.divide(1, degrees, out=np.zeros_like(degrees), where=degrees > 0)
    root = np.sqrt(inverse)
    scaled = root[:, None] * a * root if normalization == "sym" else inverse[:, None] * a
    return np.asarray(np.eye(len(a)) - scaled)


def landing(adjacency: np.ndarray, length: int) -> np.ndarray:
    """Probabilities of being back after 1 .. ``length`` steps."""
    step = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
    powers = [step]
    while len(powers) < length:
        powers.append(powers[-1] @ step)
    return np.stack([power.diagonal() for power in powers], 1)


def pagerank(adjacency: np.ndarray, alpha: float, restart: np.ndarray) -> np.ndarray:
    """The solution of its linear equations."""
    degrees, restart = adjacency.sum(1), restart / restart.sum()
    step = np.where(degrees[:, None] > 0, adjacency / np.where(degrees > 0, degrees, 1)[:, None], restart)
    return np.linalg.solve(np.eye(len(adjacency)) - alpha * step.T, (1 - alpha) * restart)


def degree_profile(adjacency: np.ndarray) -> np.ndarray:
    degrees, rows = adjacency.sum(1), []
    for node, row in enumerate(adjacency.astype(int)):
        of = np.repeat(degrees, row) if row.any() else np.zeros(1)
        rows.append([degrees[node], of.min(), of.max(), of.mean(), of.std()])
    return np.array(rows)
