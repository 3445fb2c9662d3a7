"""What graph managers answer about themselves: nodes, edges, shards, columns of several types; and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity import cases_blocks
from tests.support import hetero
from tests.support.graphs import KINDS, Graph, make
from tests.support.sessions import Workers


def check_shards(found: Any, src: np.ndarray, dst: np.ndarray, starts: np.ndarray, rank: int) -> None:
    """``found``: per peer, sources, destinations and ranges; ids are in the order of partitions."""
    for q, (sources, targets, src_range, tgt_range) in enumerate(found):
        mine = (src >= starts[0][q]) & (src < starts[0][q + 1])
        assert np.array_equal(sources, src[mine]) and np.array_equal(targets, dst[mine])
        assert tuple(src_range) == tuple(starts[0][q : q + 2])
        assert tuple(tgt_range) == tuple(starts[1][rank : rank + 2])


def check_required(results: list[Any], name: str) -> None:
    """What q needs of p, as p says it, is what q reads of p."""
    for p, giver in enumerate(results):
        for q, reader in enumerate(results):
            sources = reader["shards"][name][p][0]
            low = reader["shards"][name][p][2][0]
            assert np.array_equal(giver["required"][name][q], np.unique(sources) - low), f"{name}, {p} to {q}"


@pytest.mark.parametrize("kind", KINDS)
def test_edges_of_one_relation(few: Workers, kind: str) -> None:
    graph = make(kind, few.world, seed=3)
    triple = ("_N", "_E", "_N")
    results = few.run(cases_blocks.surface, graph.shares(), triples=[triple])
    for rank, result in enumerate(results):
        mine = graph.edges(rank)
        # edges of partition data made by hand follow shard by shard
        owner = np.searchsorted(graph.start[1:], graph.src[mine], side="right")
        mine = mine[np.argsort(owner, kind="stable")]
        for way in ("edges", "sampling"):
            assert np.array_equal(result[way]["_N:_E:_N"][0], graph.src[mine]), way
            assert np.array_equal(result[way]["_N:_E:_N"][1], graph.dst[mine]), way
        check_shards(result["shards"]["_N:_E:_N"], graph.src[mine], graph.dst[mine], np.stack([graph.start] * 2), rank)
    check_required(results, "_N:_E:_N")


def test_edges_of_several_relations(few: Workers) -> None:
    ends, cut = hetero.edges(), hetero.Cut(few.world)
    arguments = [{"part": cut.part(rank, ends)} for rank in range(few.world)]
    results = few.run(cases_blocks.surface, arguments, triples=hetero.TRIPLES)
    position = {}  # of a node among those of its type, in the order of partitions
    for kind, order in cut.nodes.items():
        position[kind] = np.empty(len(order), np.int64)
        position[kind][order] = np.arange(len(order))
    starts = np.concatenate([np.zeros((len(hetero.KINDS), 1), np.int64), cut.counts.cumsum(1)], 1)
    kinds = list(hetero.KINDS)
    for rank, result in enumerate(results):
        for triple in hetero.TRIPLES:
            name = ":".join(triple)
            mine = cut.held(triple, ends, rank)
            mine = mine[np.argsort(cut.owner[triple[0]][ends[triple][0][mine]], kind="stable")]
            src, dst = position[triple[0]][ends[triple][0][mine]], position[triple[2]][ends[triple][1][mine]]
            for way in ("edges", "sampling"):
                assert np.array_equal(result[way][name][0], src) and np.array_equal(result[way][name][1], dst), name
            both = np.stack([starts[kinds.index(triple[0])], starts[kinds.index(triple[2])]])
            check_shards(result["shards"][name], src, dst, both, rank)
    for triple in hetero.TRIPLES:
        check_required(results, ":".join(triple))


def test_columns_of_several_types(few: Workers) -> None:
    ends, cut = hetero.edges(), hetero.Cut(few.world)
    arguments = [{"part": cut.part(rank, ends)} for rank in range(few.world)]
    for text in few.run(cases_blocks.columns, arguments):
        assert text.startswith("HeteroGraphShardManager(author: ")


@pytest.mark.parametrize("keep", [True, False])
def test_a_block_says_what_it_is(few: Workers, keep: bool) -> None:
    graph = make("random", few.world, seed=6)
    seeds = np.flatnonzero(np.random.default_rng(1).random(graph.num_nodes) < 0.3)
    arguments = []
    for rank in range(few.world):
        rows = graph.rows(rank)
        own = seeds[(seeds >= rows.start) & (seeds < rows.stop)]
        arguments.append({"part": graph.part(rank), "seeds": own[::-1].copy()})
    for rank, result in enumerate(few.run(cases_blocks.block_rows, arguments, keep=keep)):
        mine = graph.edges(rank)
        mine = mine[np.isin(graph.dst[mine], seeds)]
        found = sorted(zip(*(a.tolist() for a in result["edges"])))
        assert found == sorted(zip(graph.src[mine].tolist(), graph.dst[mine].tolist()))
        assert result["global"] == [graph.num_nodes, len(graph.src)]
        assert len(result["messages"]) == 3 and "no ndata" in result["messages"][0]


# ---- what construct_mfgs refuses -------------------------------------------------


def refuse(two: Workers, graph: Graph, changes: list[dict[str, Any]]) -> list[Any]:
    none = np.zeros(0, np.int64)
    arguments = [{"part": graph.part(r), "seeds": none, **change} for r, change in enumerate(changes)]
    return two.run(cases_blocks.refused_mfgs, arguments)


def test_seeds_that_cannot_be(two: Workers) -> None:
    graph = make("random", 2, seed=1)
    middle = int(graph.start[1])
    strange, twice = np.array([middle]), np.array([0, 1, 0])
    for seeds, kind, words in (
        (strange, "ValueError", f"node {middle} is not owned by this worker, rank 0, whose ids are 0 to {middle - 1}"),
        (twice, "ValueError", "holds node 0 twice"),
        (np.array([-1]), "ValueError", "node -1 is not owned"),
        (np.array([0.5]), "TypeError", "torch.float64: give ids of nodes, integers"),
        (np.array([True, False]), "TypeError", "mask.nonzero"),
        (np.zeros((1, 1), np.int64), "ValueError", "expected one dimension"),
    ):
        own, other = refuse(two, graph, [{"seeds": seeds}, {}])
        assert own[0] == kind and words in own[1], own
        assert other[0] == "RuntimeError" and "arguments of rank 0 were refused" in other[1]
    for own in refuse(two, graph, [{"n_layers": 0}, {"n_layers": 0}]):
        assert own[0] == "ValueError" and "at least 1" in own[1]


def test_workers_that_disagree(two: Workers) -> None:
    graph = make("random", 2, seed=1)
    for rank, found in enumerate(refuse(two, graph, [{"n_layers": 2}, {"n_layers": 3}])):
        assert found[0] == "ScheduleError"
        assert f"n_layers is {2 + rank} on rank {rank} and {3 - rank} on rank {1 - rank}" in found[1]
    for found in refuse(two, graph, [{"keep": True}, {"keep": False}]):
        assert found[0] == "ScheduleError" and "keep_seed_nodes" in found[1]
    assert [f[0] for f in refuse(two, graph, [{}, {}])] == ["none", "none"]
