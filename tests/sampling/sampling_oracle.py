"""The whole graph that sampled blocks are held against."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.graphs import Graph

ETYPE = ("_N", "_E", "_N")


class Oracle:
    """The whole graph, with edges in the order in which ids count them: rank by rank."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = np.concatenate([graph.edges(rank) for rank in range(graph.world)]).astype(np.int64)
        self.degree = np.bincount(graph.dst, minlength=graph.num_nodes)
        rng = np.random.default_rng(7)
        self.x = rng.standard_normal((graph.num_nodes, 3)).astype(np.float32)
        self.y = rng.integers(0, 99, graph.num_nodes)
        self.half = rng.integers(0, 100, (graph.num_nodes, 2, 2)).astype(np.float32)  # exact in bfloat16
        self.w = rng.standard_normal((len(graph.src), 5))
        self.flag = rng.random(len(graph.src)) < 0.5

    def arguments(self, rank: int, seeds: np.ndarray) -> dict[str, Any]:
        mine, edges = self.graph.rows(rank), self.graph.edges(rank)
        return {
            "part": self.graph.part(rank),
            "seeds": seeds,
            "inputs": {"x": self.x[mine], "half": self.half[mine], "none": self.x[mine][:, :0]},
            "outputs": {"y": self.y[mine]},
            "edata": {"w": self.w[edges], "flag": self.flag[edges]},
        }

    def check(self, blocks: list[Any], seeds: np.ndarray, fanouts: list[int], replace: bool = False) -> None:
        """Holds one batch against the graph. ``seeds``: what its destination nodes are."""
        assert len(blocks) == len(fanouts)
        np.testing.assert_array_equal(blocks[-1]["dst"]["_N"], np.unique(seeds))
        for lower, upper in zip(blocks, blocks[1:]):
            np.testing.assert_array_equal(lower["dst"]["_N"], upper["src"]["_N"])
        for block, fanout in zip(blocks, fanouts):
            src, dst, edges = block["src"]["_N"], block["dst"]["_N"], block["relations"][ETYPE]
            assert len(np.unique(src)) == len(src)
            np.testing.assert_array_equal(src[: len(dst)], dst)
            have = self.degree[dst]
            expected = have if fanout == -1 else np.where(have > 0, fanout, 0) if replace else np.minimum(have, fanout)
            np.testing.assert_array_equal(np.bincount(edges["v"], minlength=len(dst)), expected)
            at = self.order[edges["columns"]["_ID"]]
            np.testing.assert_array_equal(self.graph.src[at], src[edges["u"]])
            np.testing.assert_array_equal(self.graph.dst[at], dst[edges["v"]])
            if not replace:
                assert len(np.unique(at)) == len(at)
            np.testing.assert_array_equal(edges["columns"]["w"], self.w[at])
            np.testing.assert_array_equal(edges["columns"]["flag"], self.flag[at])
            assert len(src) == len(np.union1d(dst, src[edges["u"]]))  # no source that no edge reads
        assert not any(block["srcdata"]["_N"] for block in blocks[1:])
        met = blocks[0]["src"]["_N"]
        np.testing.assert_array_equal(blocks[0]["srcdata"]["_N"]["x"], self.x[met])
        np.testing.assert_array_equal(blocks[0]["srcdata"]["_N"]["half"], self.half[met])
        assert blocks[0]["srcdata"]["_N"]["none"].shape == (len(met), 0)
        np.testing.assert_array_equal(blocks[-1]["dstdata"]["_N"]["y"], self.y[np.unique(seeds)])

    def seeds(self, seed: int = 0) -> list[np.ndarray]:
        """Some own nodes of each rank; none on some."""
        rng = np.random.default_rng(seed)
        found = []
        for rank in range(self.graph.world):
            own = np.arange(self.graph.start[rank], self.graph.start[rank + 1])
            found.append(rng.permutation(own)[: rng.integers(0, len(own) + 1)])
        return found


def union(epoch: list[Any]) -> np.ndarray:
    """The seeds of all batches."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *[blocks[-1]["dst"]["_N"] for blocks in epoch]]))
