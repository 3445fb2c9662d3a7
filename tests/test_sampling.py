"""Sampled blocks: edges that are there, as many as DGL would draw, with the right features, the same for one seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphs
import hetero
from conftest import Workers
from graphs import Graph

dgl = pytest.importorskip("dgl")
torch = pytest.importorskip("torch")

ETYPE = ("_N", "_E", "_N")
KEPT = {"_ID"}


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


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("kind", graphs.KINDS)
def test_blocks(workers: Workers, kind: str, replace: bool) -> None:
    if workers.world == 8 and kind not in ("random", "empty_worker"):
        pytest.skip("8 workers take time")
    oracle, fanouts = Oracle(graphs.make(kind, workers.world)), [4, 0, -1, 3]
    seeds = oracle.seeds()
    found = workers.run(
        "cases_sampling:batches",
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
    found = workers.run("cases_sampling:batches", arguments, feature_cache_bytes=room, bfloat16=("half",), **options)
    for epochs in found:
        for epoch in epochs:
            for blocks in epoch:
                oracle.check(blocks, blocks[-1]["dst"]["_N"], fanouts)
    plain = workers.run("cases_sampling:batches", arguments, bfloat16=("half",), **options)
    assert str(found) == str(plain)


def test_cached_features_travel_once(two: Workers) -> None:
    graph = graphs.make("random", 2)
    width = 100
    first, later, held, far = zip(
        *two.run("cases_sampling:cached", [{"part": graph.part(r), "width": width} for r in range(2)])
    )
    for rank in range(2):
        # what a rank receives of features in the first epoch the other one has sent, with numbers of rows and frames
        assert first[1 - rank] - later[1 - rank] == pytest.approx(far[rank] * 4 * width, abs=600)
        others = graph.num_nodes - len(np.arange(graph.num_nodes)[graph.rows(rank)])
        assert held[rank] <= others * 4 * width + 4096  # whole pages


def union(epoch: list[Any]) -> np.ndarray:
    """The seeds of all batches."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *[blocks[-1]["dst"]["_N"] for blocks in epoch]]))


@pytest.mark.parametrize("fanout", [-1, 0, 1, 3, 50])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_many_edges_as_dgl_draws(two: Workers, fanout: int, replace: bool, weighted: bool) -> None:
    oracle = Oracle(graphs.make("random", 2))
    graph = oracle.graph
    p = np.random.default_rng(1).random(len(graph.src)) * (np.arange(len(graph.src)) % 3 > 0)
    whole = dgl.graph((torch.from_numpy(graph.src), torch.from_numpy(graph.dst)), num_nodes=graph.num_nodes)
    whole.edata["p"] = torch.from_numpy(p)
    seeds = [np.arange(graph.num_nodes)[graph.rows(rank)] for rank in range(2)]
    found = two.run(
        "cases_sampling:batches",
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
        "cases_sampling:batches",
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
    arguments = [{"part": graph.part(r), "seeds": ids[graph.rows(r)]} for r in range(graph.world)]
    different = 0
    for one, same, other, threads in workers.run("cases_sampling:again", arguments):
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
    found = workers.run("cases_sampling:same_node", [{"part": graph.part(r)} for r in range(world)], node=0)
    assert len(found[0]) == 4
    assert all(edges == found[0] for edges in found)


def test_every_worker_yields_the_same_number_of_batches(workers: Workers) -> None:
    world = workers.world
    start = np.cumsum([0] + [3 + 7 * (r % 3) for r in range(world)])  # 3, 10 and 17 nodes
    rng = np.random.default_rng(0)
    graph = Graph(int(start[-1]), rng.integers(0, start[-1], 90), rng.integers(0, start[-1], 90), start)
    seeds = [np.arange(start[r], start[r + 1]) if r != 1 or world > 4 else np.empty(0, np.int64) for r in range(world)]
    for drop_last in (False, True):
        found = workers.run(
            "cases_sampling:batches",
            [{"part": graph.part(r), "seeds": seeds[r]} for r in range(world)],
            fanouts=[2],
            loader={"batch_size": 4, "drop_last": drop_last, "shuffle": True},
            epochs=2,
        )
        most = max(map(len, seeds))
        count = most // 4 if drop_last else -(-most // 4)
        orders = set()
        for own, epochs in zip(seeds, found):
            for epoch in epochs:
                assert len(epoch) == count
                sizes = [len(blocks[-1]["dst"]["_N"]) for blocks in epoch]
                assert all(size == 0 if len(own) == 0 else 0 < size <= 4 for size in sizes), sizes
                if len(own) == most and drop_last:
                    assert sizes == [4] * count
                if not drop_last:
                    np.testing.assert_array_equal(union(epoch), own)
                orders.add(str([blocks[-1]["dst"]["_N"].tolist() for blocks in epoch]))
        assert len(orders) > world or most <= 4


def test_batches_with_few_edges_between_them(workers: Workers, tmp_path: Path) -> None:
    """Nodes in groups of 10 that are joined among themselves: batches of 10 are the groups, or nearly."""
    world, groups = workers.world, 6
    n, rng = world * groups * 10, np.random.default_rng(0)
    start = np.arange(world + 1) * groups * 10
    group = np.concatenate([rng.permutation(np.repeat(np.arange(groups), 10)) + groups * r for r in range(world)])
    members = np.argsort(group, kind="stable").reshape(-1, 10)
    src = np.concatenate([np.repeat(m, 10) for m in members] + [rng.integers(0, n, 20)])
    dst = np.concatenate([np.tile(m, 10) for m in members] + [rng.integers(0, n, 20)])
    graph = Graph(n, src, dst, start)
    seeds = [rng.permutation(np.arange(start[r], start[r + 1]))[: 60 - 5 * (r % 2)] for r in range(world)]
    found = workers.run(
        "cases_sampling:precomputed",
        [{"part": graph.part(r), "seeds": seeds[r]} for r in range(world)],
        size=10,
        cache=str(tmp_path / "cached"),
    )
    for own, result in zip(seeds, found):
        made = result["made"]
        assert len(made) == groups
        assert {len(batch) for batch in made} <= {len(own) // 6, -(-len(own) // 6)}
        np.testing.assert_array_equal(np.sort(np.concatenate(made)), np.sort(own))
        pairs = sum(int((group[b][:, None] == group[b][None]).sum()) for b in made)
        assert pairs > 0.75 * sum(len(b) ** 2 for b in made)
        for again in ("read", "mended", "cut"):
            assert str(result[again]) == str(made), again
        np.testing.assert_array_equal(np.sort(np.concatenate(result["fewer"])), np.sort(own[1:]))
        assert sorted(str(np.sort(b)) for b in result["yielded"]) == sorted(str(np.sort(b)) for b in made)


def test_precomputed_batches_of_a_dgl_graph(two: Workers) -> None:
    graph = graphs.make("random", 2)
    seeds = [np.arange(graph.num_nodes)[graph.rows(r)][::2] for r in range(2)]
    found = two.run(
        "cases_sampling:dgl_partition", [{"part": graph.part(r), "seeds": seeds[r]} for r in range(2)], size=4
    )
    for own, made in zip(seeds, found):
        assert len(made) == max(-(-len(s) // 4) for s in seeds)
        np.testing.assert_array_equal(np.unique(np.concatenate(made)), own)


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_other_work_while_batches_are_on_their_way(pool: Any, world: int, transport: str) -> None:
    if world == 1 and transport == "tcp":
        pytest.skip("one worker has no transport")
    graph = graphs.make("random", world)
    x = np.arange(graph.num_nodes * 2.0).reshape(-1, 2)
    seeds = [np.arange(graph.num_nodes)[graph.rows(r)] for r in range(world)]
    Workers(pool, world, transport).run(
        "cases_sampling:interleaved",
        [{"part": graph.part(r), "x": x[graph.rows(r)], "seeds": seeds[r]} for r in range(world)],
    )


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
        "cases_sampling:batches",
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


def test_sampled_training_is_as_good_as_full_batch(two: Workers) -> None:
    """On Cora; the example does the same on a denser graph."""
    with np.load(Path(__file__).parent.parent / "examples" / "data" / "cora.npz") as arrays:
        (src, dst), y = arrays["edge_index"].astype(np.int64), arrays["y"]
        x = arrays["x"].astype(np.float32)
        masks = np.stack([arrays["train_mask"], arrays["test_mask"]])
    x /= np.maximum(1, x.sum(1, keepdims=True))
    whole = dgl.graph((torch.from_numpy(src), torch.from_numpy(dst)), num_nodes=len(y))
    known, test = (torch.from_numpy(m) for m in masks)
    labels = torch.from_numpy(y)
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([dgl.nn.SAGEConv(x.shape[1], 32, "mean"), dgl.nn.SAGEConv(32, 7, "mean")])
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more only wait for each other here
    for _ in range(60):
        logits = layers[1](whole, torch.relu(layers[0](whole, torch.from_numpy(x))))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits[known], labels[known]).backward()
        optimizer.step()
    torch.set_num_threads(threads)
    full = float((logits.argmax(1) == labels)[test].float().mean())
    graph = Graph(len(y), src, dst, np.array([0, 1200, len(y)]))
    rows = [graph.rows(r) for r in range(2)]
    sampled = two.run(
        "cases_sampling:train",
        [{"part": graph.part(r), "x": x[rows[r]], "y": y[rows[r]], "masks": masks[:, rows[r]]} for r in range(2)],
        classes=7,
        fanouts=[10, 10],
        batch_size=35,
        epochs=15,
        hidden=32,
    )
    assert sampled[0] == sampled[1]
    assert sampled[0] > full - 0.02, (sampled, full)
    assert full > 0.7  # the largest class has 0.3


def test_collator_and_a_sampler_of_ones_own(two: Workers) -> None:
    graph = graphs.make("random", 2)
    seeds = [np.arange(graph.num_nodes)[graph.rows(r)][3:9] for r in range(2)]
    arguments = [{"part": graph.part(r), "seeds": seeds[r][::-1].copy()} for r in range(2)]
    for own, (single, batch) in zip(seeds, two.run("cases_sampling:collated", arguments)):
        np.testing.assert_array_equal(single["dst"]["_N"], own)
        assert str(single["src"]) == str(batch["src"])
        assert not single["relations"][ETYPE]["columns"]  # copy_edata=False
    for own, batches in zip(seeds, two.run("cases_sampling:own_sampler", arguments)):
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), own)


def test_features_that_change(two: Workers) -> None:
    graph = graphs.make("random", 2)
    x = np.arange(graph.num_nodes * 2.0).reshape(-1, 2)
    two.run(
        "cases_sampling:changed",
        [
            {"part": graph.part(r), "x": x[graph.rows(r)], "seeds": np.arange(graph.num_nodes)[graph.rows(r)]}
            for r in range(2)
        ],
    )


def test_what_is_refused(two: Workers) -> None:
    graph = graphs.make("random", 2)
    x = np.zeros((graph.num_nodes, 2))
    expected = [
        ("ValueError", "fanouts is empty"),
        ("ValueError", "is not of this worker"),
        ("ValueError", "integers in one dimension"),
        ("KeyError", "there are the types _N"),
        ("ValueError", "is not of this worker"),
        ("ValueError", "batch_size is 0"),
        ("ValueError", "a fan-out is -3"),
        ("KeyError", "likes"),
        ("KeyError", "there are: p, wide"),
        ("ValueError", "weights must be finite and not negative"),
        ("ValueError", "prob needs one number per edge"),
        ("ValueError", "feature 'x' has shape"),
        ("KeyError", "node type 'user' is unknown"),
    ]
    for found in two.run(
        "cases_sampling:refused", [{"part": graph.part(r), "x": x[graph.rows(r)]} for r in range(2)]
    ):
        assert [kind for kind, _ in found] == [kind for kind, _ in expected]
        for (_, message), (_, part) in zip(found, expected):
            assert part in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([{"fanouts": [2]}, {"fanouts": [2, 2]}], "number of layers"),
        ([{"width": 2}, {"width": 3}], "feature widths"),
        ([{"width": 2}, {"width": None}], "input features or none"),
    ],
)
def test_samplers_that_differ_between_ranks(two: Workers, options: list[dict[str, Any]], said: str) -> None:
    graph = graphs.make("random", 2)
    arguments = [{"fanouts": [2], "width": 1, "part": graph.part(r), **options[r]} for r in range(2)]
    failures = two.attempt("cases_sampling:unlike", arguments)
    assert any(said in str(failure) for failure in failures), failures
    assert all(hasattr(failure, "kind") for failure in failures), failures


def test_rows_larger_than_a_frame(two: Workers) -> None:
    graph = Graph(4, np.array([0, 1, 2, 3]), np.array([3, 2, 1, 0]), np.array([0, 2, 4]))
    two.run("cases_sampling:too_wide", [{"part": graph.part(r)} for r in range(2)], width=2 << 20)


def test_a_rank_that_fails_in_the_middle_of_an_epoch(two: Workers) -> None:
    graph = graphs.make("random", 2)
    failures = two.attempt("cases_sampling:leave_early", [{"part": graph.part(r), "rank": r} for r in range(2)])
    assert failures[1].kind == "ValueError"
    assert failures[0].kind == "RemoteError"
    assert "a bug of the script" in failures[0].message
