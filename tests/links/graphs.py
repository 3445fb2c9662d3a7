"""One graph cut in several ways, with original ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.support.graphs import Graph, make


class Cut(NamedTuple):
    """A graph split over workers, whose node p has the original id ``ids[p]``.

    :ivar whole: the same graph by original ids
    """

    graph: Graph
    ids: np.ndarray
    whole: Graph

    def shares(self, ranks: dict[str, Any] | None = None, **given: Any) -> list[dict[str, Any]]:
        """As of :class:`Graph`; arrays of nodes are by original ids, and each rank gets its original ids too."""
        nodes = {name: value[self.ids] for name, value in given.items()}
        return self.graph.shares(ranks=ranks, ids=self.ids, **nodes)

    def rows(self, rank: int) -> np.ndarray:
        """Original ids of own nodes."""
        return self.ids[self.graph.rows(rank)]


def cut(world: int, seed: int = 5, empty: bool = False) -> Cut:
    """The same graph for every number of workers, by original ids.

    :param empty: the last worker has no nodes
    """
    whole = make("random", 1, seed)
    rng = np.random.default_rng(1000 * seed + world)
    ids = rng.permutation(whole.num_nodes)
    place = ids.argsort()
    start = np.sort(rng.integers(0, whole.num_nodes + 1, world - 1))
    if empty and world > 1:
        start[-1] = whole.num_nodes
    start = np.concatenate([[0], start, [whole.num_nodes]])
    return Cut(Graph(whole.num_nodes, place[whole.src], place[whole.dst], start), ids, whole)
