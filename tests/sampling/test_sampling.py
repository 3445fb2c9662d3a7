"""Sampled blocks: edges that are there, as many as DGL would draw, with the right features, the same for one seed."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.sampling import cases_sampling
from tests.sampling.sampling_oracle import ETYPE, Oracle, union
from tests.support import graphs, hetero
from tests.support.graphs import Graph
from tests.support.sessions import Workers


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("kind", graphs.KINDS)
def test_blocks(workers: Workers, kind: str, replace: bool) -> None:
    if workers.world == 8 and kind not in ("random", "empty_worker"):
        pytest.skip("8 workers take time")
    oracle, fanouts = Oracle(graphs.make(kind, workers.world)), [4, 0, -1, 3]
    seeds = oracle.seeds()
    found = workers.run(
        cases_sampling.batches,
        [oracle.arguments(rank, s) for rank, s in enumerate(seeds)],
        fanouts=fanouts,
        replace=replace,
        epochs=2,
        loader={"batch_size": 9, "shuffle": True},
        bfloat16=("half",),
    )
    count = max(-(-len(s) // 9) for s in seeds)
    for own, epochs in zip(seeds, found):
        for epoch in epochs:
            assert len(epoch) == count
            for blocks in epoch:
                oracle.check(blocks, blocks[-1]["dst"]["_N"], fanouts, replace)
            np.testing.assert_array_equal(union(epoch), np.sort(own))


@pytest.mark.parametrize("room", [40 * 28, 1 << 20])
@pytest.mark.parametrize("kind", ["random", "empty_worker", "one_node"])
def test_cache_of_features(workers: Workers, kind: str, room: int) -> None:
    """Rows of 28 bytes, of which the cache holds some or all: the blocks are the same, epoch after epoch."""
    oracle, fanouts = Oracle(graphs.make(kind, workers.world)), [4, -1]
    seeds = [np.arange(oracle.graph.start[r], oracle.graph.start[r + 1]) for r in range(workers.world)]
    arguments = [oracle.arguments(rank, s) for rank, s in enumerate(seeds)]
    options: dict[str, Any] = {"fanouts": fanouts, "epochs": 3, "loader": {"batch_size": 9, "shuffle": True}}
    found = workers.run(cases_sampling.batches, arguments, feature_cache_bytes=room, bfloat16=("half",), **options)
    for epochs in found:
        for epoch in epochs:
            for blocks in epoch:
                oracle.check(blocks, blocks[-1]["dst"]["_N"], fanouts)
    plain = workers.run(cases_sampling.batches, arguments, bfloat16=("half",), **options)
    assert str(found) == str(plain)


def test_cached_features_travel_once(two: Workers) -> None:
    graph = graphs.make("random", 2)
    width = 100
    first, later, held, far = zip(
        *two.run(cases_sampling.cached, [{"part": graph.part(r), "width": width} for r in range(2)])
    )
    for rank in range(2):
        # what a rank receives of features in the first epoch the other one has sent, with numbers of rows and frames
        assert first[1 - rank] - later[1 - rank] == pytest.approx(far[rank] * 4 * width, abs=600)
        others = graph.num_nodes - len(np.arange(graph.num_nodes)[graph.rows(rank)])
        assert held[rank] <= others * 4 * width + 4096  # whole pages


@pytest.mark.parametrize("fanout", [-1, 0, 1, 3, 50])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_many_edges_as_dgl_draws(two: Workers, fanout: int, replace: bool, weighted: bool) -> None:
    oracle = Oracle(graphs.make("random", 2))
    graph = oracle.graph
    p = np.random.default_rng(1).random(len(graph.src)) * (np.arange(len(graph.src)) % 3 > 0)
    whole = graph.of_dgl()
    whole.edata["p"] = torch.from_numpy(p)
    seeds = [np.arange(graph.num_nodes)[graph.rows(rank)] for rank in range(2)]
    found = two.run(
        cases_sampling.batches,
        [
            {"part": graph.part(r), "seeds": seeds[r], "edata": {"p": p[graph.edges(r)]} if weighted else None}
            for r in range(2)
        ],
        fanouts=[fanout],
        replace=replace,
        prob="p" if weighted else None,
        loader={"batch_size": 100},
    )
    for rank, ((blocks,),) in enumerate(found):
        drawn = dgl.sampling.sample_neighbors(
            whole, torch.from_numpy(seeds[rank]), fanout, prob="p" if weighted else None, replace=replace
        )
        edges = blocks[0]["relations"][ETYPE]
        np.testing.assert_array_equal(
            np.bincount(edges["v"], minlength=len(seeds[rank])), drawn.in_degrees().numpy()[graph.rows(rank)]
        )
        if weighted:
            assert (p[oracle.order[edges["columns"]["_ID"]]] > 0).all()


def test_edges_are_drawn_alike(two: Workers) -> None:
    """One node with in-edges of 12 others, 3 of its 13 drawn 900 times: every edge about as often as any other."""
    n, times = 12, 900
    src, dst = np.arange(n), np.full(n, n)
    graph = Graph(n + 1, np.append(src, 0), np.append(dst, n), np.array([0, 5, n + 1]))
    # node 12 is asked for by its owner and, as the source of an edge into node 0, by the other rank
    graph = graph._replace(src=np.append(graph.src, n), dst=np.append(graph.dst, 0))
    found = two.run(
        cases_sampling.batches,
        [{"part": graph.part(0), "seeds": np.array([0])}, {"part": graph.part(1), "seeds": np.array([n])}],
        fanouts=[3, 3],
        epochs=times,
        loader={"batch_size": 1},
    )
    oracle = Oracle(graph)
    for epochs in found:
        counts = np.zeros(n + 1)
        for (blocks,) in epochs:
            edges = blocks[0]["relations"][ETYPE]
            at = oracle.order[edges["columns"]["_ID"]]
            counts += np.bincount(at[graph.dst[at] == n], minlength=n + 1)[: n + 1]
        expected = 3 * times / (n + 1)
        assert counts.sum() == 3 * times
        chi = ((counts - expected) ** 2 / expected).sum() * n / (n + 1 - 3)  # drawn without replacement
        assert chi < 33, counts  # 12 degrees of freedom: one in a thousand is above


def test_one_seed_gives_one_sequence_of_blocks(workers: Workers) -> None:
    graph = graphs.make("random", workers.world)
    ids = np.arange(graph.num_nodes)
    arguments = graph.shares(seeds=ids)
    different = 0
    for one, same, other, threads in workers.run(cases_sampling.again, arguments):
        assert str(one) == str(same) == str(threads)
        different += str(one) != str(other)
    assert different > 0


def test_workers_with_one_seed_draw_the_same_edges_of_a_node(workers: Workers) -> None:
    """So that workers' batches together are one batch of all their seeds."""
    rng = np.random.default_rng(0)
    world, n = workers.world, 5 * workers.world
    start = np.arange(world + 1) * 5
    src, dst = rng.integers(1, n, 300), rng.integers(0, n, 300)
    src = np.concatenate([src, np.zeros(n, np.int64), rng.integers(0, n, 30)])  # node 0 is a source of every node
    dst = np.concatenate([dst, np.arange(n), np.zeros(30, np.int64)])
    graph = Graph(n, src, dst, start)
    found = workers.run(cases_sampling.same_node, graph.shares(), node=0)
    assert len(found[0]) == 4
    assert all(edges == found[0] for edges in found)


class Typed:
    """A graph of several types cut for some workers, ids as blocks name them: per type, rank by rank."""

    def __init__(self, world: int) -> None:
        self.cut, self.ends = hetero.Cut(world), hetero.edges()
        self.number = {}
        for kind, nodes in self.cut.nodes.items():
            self.number[kind] = np.empty(len(nodes), np.int64)
            self.number[kind][nodes] = np.arange(len(nodes))
        self.features = hetero.features(0)

    def own(self, rank: int, features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {kind: rows[self.cut.rows(kind, rank)] for kind, rows in features.items()}


@pytest.mark.parametrize("by_dict", [True, False])
def test_several_types(workers: Workers, by_dict: bool) -> None:
    graph = Typed(workers.world)
    cut, number = graph.cut, graph.number
    labels = {"paper": np.arange(hetero.KINDS["paper"]) * 3}
    fanouts = [{triple: n % 4 for n, triple in enumerate(hetero.TRIPLES)}, 2]
    arguments, wanted = [], []
    for rank in range(workers.world):
        papers, venues = number["paper"][cut.rows("paper", rank)], number["venue"][cut.rows("venue", rank)]
        seeds: Any = {"paper": papers, "venue": venues}
        wanted.append(seeds)
        if not by_dict:  # ids over all types
            seeds = np.concatenate([cut.ids[kind][cut.rows(kind, rank)] for kind in ("venue", "paper")])
        arguments.append(
            {
                "part": cut.part(rank, graph.ends),
                "seeds": seeds,
                "inputs": {"x": graph.own(rank, graph.features)},
                "outputs": {"y": graph.own(rank, labels)},
            }
        )
    found = workers.run(
        cases_sampling.batches,
        arguments,
        fanouts=fanouts,
        loader={"batch_size": 12, "precompute_optimized_batches": by_dict},
        copy_edata=False,
    )
    original = cut.nodes  # by number
    for rank, ((*epoch,),) in enumerate(found):
        for kind in ("paper", "venue"):
            got = np.unique(np.concatenate([blocks[-1]["dst"][kind] for blocks in epoch]))
            np.testing.assert_array_equal(got, np.sort(wanted[rank][kind]))
        for blocks in epoch:
            for kind in hetero.KINDS:
                np.testing.assert_array_equal(blocks[0]["dst"][kind], blocks[1]["src"][kind])
                met = original[kind][blocks[0]["src"][kind]]
                np.testing.assert_array_equal(blocks[0]["srcdata"][kind]["x"], graph.features[kind][met])
            y = blocks[-1]["dstdata"]["paper"]["y"]
            np.testing.assert_array_equal(y, 3 * original["paper"][blocks[-1]["dst"]["paper"]])
            for block, fanout in zip(blocks, fanouts):
                for triple, edges in block["relations"].items():
                    check_relation(graph, block, triple, edges, fanout if isinstance(fanout, int) else fanout[triple])


def check_relation(graph: Typed, block: Any, triple: Any, edges: Any, fanout: int) -> None:
    source, _, target = triple
    src, dst = (graph.number[kind][ends] for kind, ends in zip((source, target), graph.ends[triple]))
    own = block["dst"][target]
    degree = np.bincount(dst, minlength=hetero.KINDS[target])[own]
    np.testing.assert_array_equal(np.bincount(edges["v"], minlength=len(own)), np.minimum(degree, fanout))
    known = set(zip(src.tolist(), dst.tolist()))
    drawn = zip(block["src"][source][edges["u"]].tolist(), own[edges["v"]].tolist())
    assert set(drawn) <= known
