"""Batches of sampled blocks: how many there are, what is in them, training with them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.sampling import cases_sampling, cases_sampling_loader
from tests.sampling.sampling_oracle import ETYPE, union
from tests.support import ROOT, graphs
from tests.support.graphs import Graph
from tests.support.sessions import Workers


def test_every_worker_yields_the_same_number_of_batches(workers: Workers) -> None:
    world = workers.world
    start = np.cumsum([0] + [3 + 7 * (r % 3) for r in range(world)])  # 3, 10 and 17 nodes
    rng = np.random.default_rng(0)
    graph = Graph(int(start[-1]), rng.integers(0, start[-1], 90), rng.integers(0, start[-1], 90), start)
    seeds = [np.arange(start[r], start[r + 1]) if r != 1 or world > 4 else np.empty(0, np.int64) for r in range(world)]
    for drop_last in (False, True):
        found = workers.run(
            cases_sampling.batches,
            graph.shares(ranks={"seeds": seeds}),
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
        cases_sampling_loader.precomputed,
        graph.shares(ranks={"seeds": seeds}),
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
    found = two.run(cases_sampling_loader.dgl_partition, graph.shares(ranks={"seeds": seeds}), size=4)
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
        cases_sampling_loader.interleaved,
        graph.shares(x=x, ranks={"seeds": seeds}),
    )


def test_sampled_training_is_as_good_as_full_batch(two: Workers) -> None:
    """On Cora; the example does the same on a denser graph."""
    with np.load(ROOT / "examples" / "data" / "cora.npz") as arrays:
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
        cases_sampling_loader.train,
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
    for own, (single, batch) in zip(seeds, two.run(cases_sampling_loader.collated, arguments)):
        np.testing.assert_array_equal(single["dst"]["_N"], own)
        assert str(single["src"]) == str(batch["src"])
        assert not single["relations"][ETYPE]["columns"]  # copy_edata=False
    for own, batches in zip(seeds, two.run(cases_sampling_loader.own_sampler, arguments)):
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), own)


def test_features_that_change(two: Workers) -> None:
    graph = graphs.make("random", 2)
    x = np.arange(graph.num_nodes * 2.0).reshape(-1, 2)
    two.run(
        cases_sampling.changed,
        graph.shares(x=x, seeds=np.arange(graph.num_nodes)),
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
    for found in two.run(cases_sampling.refused, graph.shares(x=x)):
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
    failures = two.attempt(cases_sampling.unlike, arguments)
    assert any(said in str(failure) for failure in failures), failures
    assert all(hasattr(failure, "kind") for failure in failures), failures


def test_rows_larger_than_a_frame(two: Workers) -> None:
    graph = Graph(4, np.array([0, 1, 2, 3]), np.array([3, 2, 1, 0]), np.array([0, 2, 4]))
    two.run(cases_sampling.too_wide, graph.shares(), width=2 << 20)


def test_a_rank_that_fails_in_the_middle_of_an_epoch(two: Workers) -> None:
    graph = graphs.make("random", 2)
    failures = two.attempt(cases_sampling_loader.leave_early, [{"part": graph.part(r), "rank": r} for r in range(2)])
    assert failures[1].kind == "ValueError"
    assert failures[0].kind == "RemoteError"
    assert "a bug of the script" in failures[0].message
