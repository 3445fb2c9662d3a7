"""What Python functions are given, draw and change."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import cases_message
from tests.support.graphs import close, make
from tests.support.sessions import Workers


def test_ids_and_shards(few: Workers) -> None:
    graph = make("random", few.world)
    node = np.arange(graph.num_nodes)
    for rank, got in enumerate(few.run(cases_message.given_to_functions, graph.shares(node=node))):
        rows, mine = graph.rows(rank), graph.edges(rank)
        src, dst = graph.src[mine], graph.dst[mine]
        assert np.array_equal(got["ids"], np.stack([src, dst, np.arange(len(mine))], 1))
        assert np.array_equal(got["own"], src)
        owner = np.searchsorted(graph.start[1:], src, side="right")
        first = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=graph.world))])
        ends = [graph.start[owner], graph.start[owner + 1], *([s] * len(mine) for s in (rows.start, rows.stop))]
        shards = np.stack([*ends, first[owner], first[owner + 1]], 1)
        assert np.array_equal(got["shard"], shards)
        summed = np.zeros((rows.stop - rows.start, 6), np.int64)
        np.add.at(summed, dst - rows.start, shards)
        assert np.array_equal(got["shards"], summed) and np.array_equal(got["summed"], summed)
        some_in = np.isin(node[rows], dst)
        assert np.array_equal(got["node"], np.where(some_in, node[rows], 0))
        total = np.zeros(len(summed), np.int64)
        np.add.at(total, dst - rows.start, src)
        assert np.array_equal(got["n"], total)


@pytest.mark.parametrize("mailbox", [False, True], ids=["sum", "mailbox"])
@pytest.mark.parametrize("keep", [False, True], ids=["again", "kept"])
def test_dropout_is_the_same_in_backward(few: Workers, mailbox: bool, keep: bool) -> None:
    graph = make("random", few.world)
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, (graph.num_nodes, 3))
    w = rng.uniform(1, 2, (len(graph.src), 3))
    arguments = [
        {"part": graph.part(r), "x": x[graph.rows(r)], "w": w[graph.edges(r)], "mailbox": mailbox, "keep": keep}
        for r in range(graph.world)
    ]
    for rank, got in enumerate(few.run(cases_message.dropping, arguments)):
        mine, rows = graph.edges(rank), graph.rows(rank)
        scale = got["w"] / x[graph.src[mine]]  # the mask, as the gradient shows it
        assert np.isin(scale.round(9), [0, 2]).all()
        if scale.size > 100:
            assert 0.3 < (scale != 0).mean() < 0.7
        out = np.zeros((rows.stop - rows.start, 3))
        np.add.at(out, graph.dst[mine] - rows.start, got["w"] * w[mine])
        close(got["first"], out, f"rank {rank}")
        assert np.array_equal(got["first"], got["again"])
        assert not scale.size or not np.array_equal(got["first"], got["second"])


def test_some_edges(few: Workers) -> None:
    graph = make("random", few.world)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((graph.num_nodes, 2)), rng.standard_normal((len(graph.src), 2))
    mark = rng.random(len(graph.src)) < 0.3
    if graph.world > 1:
        mark[graph.edges(0)] = False  # one worker chooses none
    arguments, chosen = [], []
    for r in range(graph.world):
        chosen.append(rng.permutation(np.flatnonzero(mark[graph.edges(r)])))
        arguments.append({"part": graph.part(r), "x": x[graph.rows(r)], "w": w[graph.edges(r)], "chosen": chosen[r]})
    grad_x = np.zeros_like(x)
    s, d = graph.src[mark], graph.dst[mark]
    for here, there in ((s, d), (d, s)):
        np.add.at(grad_x, here, x[there] + 2 * (x[s] + x[d]))
    for rank, got in enumerate(few.run(cases_message.some_edges, arguments)):
        mine = graph.edges(rank)
        here = mark[mine][:, None]
        a, b = x[graph.src[mine]], x[graph.dst[mine]]
        close(got["first"], np.where(here, a * b, 0), f"rank {rank}")
        close(got["second"], np.where(here, a + b, w[mine]), f"rank {rank}")
        close(got["edges"]["w"], np.where(here, 0, 2 * w[mine]), f"rank {rank}")
        close(got["nodes"]["x"], grad_x[graph.rows(rank)], f"rank {rank}")


def test_running_statistics(few: Workers) -> None:
    graph = make("hub", few.world)
    x = np.random.default_rng(0).standard_normal((graph.num_nodes, 2))
    for got in few.run(cases_message.running_statistics, graph.shares(x=x)):
        assert got["batches"] == got["after"]
        assert got["grad"] is None or np.isfinite(got["grad"]).all()
