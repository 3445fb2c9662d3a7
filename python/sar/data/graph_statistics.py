"""Describes the edges of a graph directory: degrees, isolated nodes, duplicates, self loops, symmetry. Reads the arrays
in blocks, so that memory does not depend on the size of the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sar.data.graph_directory import EdgeType, GraphDirectory

_EDGES = 1 << 21  # of a block
_NODES = 1 << 24  # whose degrees are counted at once; more of them: the sources are read again

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


@dataclass
class Degrees:
    """How many nodes have each degree. ``counts`` has the number of nodes by degree."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, degrees: np.ndarray) -> None:
        """Counts the degrees of some nodes."""
        for degree, count in zip(*(part.tolist() for part in np.unique(degrees, return_counts=True))):
            self.counts[degree] = self.counts.get(degree, 0) + count

    def describe(self) -> dict[str, float]:
        """Mean, largest, and quantiles: the smallest degree that at least such a part of the nodes does not exceed."""
        degrees = np.array(sorted(self.counts), np.int64)
        nodes = np.array([self.counts[d] for d in degrees.tolist()], np.int64)
        if not len(degrees):
            return {}
        reached = np.cumsum(nodes)
        found = {"mean": float((degrees * nodes).sum() / reached[-1])}
        for q in QUANTILES:
            found[f"{100 * q:g}%"] = int(degrees[np.searchsorted(reached, np.ceil(q * reached[-1]))])
        found["max"] = int(degrees[-1])
        return found

    def histogram(self) -> list[tuple[str, int]]:
        """Numbers of nodes by ranges of degrees that double: 0, 1, 2-3, 4-7, …"""
        if not self.counts:
            return []
        bars = [0] * (max(self.counts).bit_length() + 1)
        for degree, count in self.counts.items():
            bars[degree.bit_length()] += count
        names = ["0", "1"] + [f"{1 << (k - 1)}-{(1 << k) - 1}" for k in range(2, len(bars))]
        return list(zip(names, bars))


@dataclass
class EdgeStatistics:
    """What the edges of a type are like. ``symmetric`` says whether every edge has its reverse; None between types."""

    self_loops: int = 0
    duplicates: int = 0
    symmetric: bool | None = None
    in_degrees: Degrees = field(default_factory=Degrees)
    out_degrees: Degrees = field(default_factory=Degrees)


@dataclass
class GraphStatistics:
    """For each edge type, what its edges are like, and for each node type, how many nodes have no edges at all."""

    edges: list[EdgeStatistics]
    isolated: dict[str, int]


def describe(graph: GraphDirectory, progress: Callable[[int, int], None] = lambda done, total: None) -> GraphStatistics:
    """Reads all edges of a graph.

    :param progress: is told how many edges were read, and how many there are to read
    """
    passes = [1 + -(-graph.node_types[one.type[0]].count // _NODES) for one in graph.edge_types]
    total = sum(one.count * times for one, times in zip(graph.edge_types, passes))
    done = 0

    def told(edges: int) -> None:
        nonlocal done
        done += edges
        progress(done, total)

    statistics = [_edges(graph, one, told) for one in graph.edge_types]
    isolated = {name: _degrees(graph, name, statistics, told) for name in graph.node_types}
    return GraphStatistics(statistics, isolated)


def _edges(graph: GraphDirectory, one: EdgeType, told: Callable[[int], None]) -> EdgeStatistics:
    found = EdgeStatistics()
    last = (-1, -1)
    balance = 0
    for block in graph.blocks(one, _EDGES):
        source, target = block.source, block.target()
        again = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
        found.duplicates += int(np.count_nonzero(again)) + (last == (source[0], target[0]))
        last = (source[-1], target[-1])
        if one.type[0] == one.type[2]:
            found.self_loops += int(np.count_nonzero(source == target))
            balance += _mixed(source, target) - _mixed(target, source)
        told(len(source))
    if one.type[0] == one.type[2]:
        found.symmetric = balance % 2**64 == 0
    return found


def _mixed(first: np.ndarray, second: np.ndarray) -> int:
    """The sum of a hash of each pair. Lists of pairs that are not the same in another order have the same sum with a
    probability of 2^-64."""
    x = first.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + second.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return int((x ^ (x >> np.uint64(31))).sum(dtype=np.uint64))


def _degrees(graph: GraphDirectory, name: str, statistics: list[EdgeStatistics], told: Callable[[int], None]) -> int:
    """Counts the degrees of the nodes of a type, and gives how many of them have no edges."""
    isolated = 0
    for low in range(0, graph.node_types[name].count, _NODES):
        high = min(low + _NODES, graph.node_types[name].count)
        alone = np.ones(high - low, bool)
        for one, found in zip(graph.edge_types, statistics):
            if one.type[2] == name:
                degrees = np.diff(graph.map(one.indptr)[low : high + 1])
                found.in_degrees.add(degrees)
                alone &= degrees == 0
            if one.type[0] == name:
                degrees = np.zeros(high - low, np.int64)
                for begin in range(0, one.count, _EDGES):
                    source = np.array(graph.map(one.source)[begin : begin + _EDGES], np.int64)
                    own = source[(source >= low) & (source < high)] - low
                    degrees += np.bincount(own, minlength=high - low)
                    told(len(source))
                found.out_degrees.add(degrees)
                alone &= degrees == 0
        isolated += int(np.count_nonzero(alone))
    return isolated


def as_dict(statistics: GraphStatistics, graph: GraphDirectory) -> dict[str, Any]:
    """The statistics as JSON has them."""
    return {
        "isolated_nodes": statistics.isolated,
        "edge_types": [
            {
                "type": list(one.type),
                "self_loops": found.self_loops,
                "duplicates": found.duplicates,
                "symmetric": found.symmetric,
                "in_degrees": found.in_degrees.describe(),
                "out_degrees": found.out_degrees.describe(),
                "in_degree_histogram": dict(found.in_degrees.histogram()),
            }
            for one, found in zip(graph.edge_types, statistics.edges)
        ],
    }
