"""``ndata`` of the graph of one-shot aggregation, and what is said of seed nodes that do not ascend."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import cases_one_shot
from tests.support.graphs import KINDS, close, make
from tests.support.sessions import Workers


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_ndata(few: Workers, kind: str, ours: bool) -> None:
    graph = make(kind, few.world, seed=5)
    rng = np.random.default_rng(2)
    x, grad = rng.standard_normal((2, graph.num_nodes, 3))
    adjacency = np.zeros((graph.num_nodes, graph.num_nodes))
    np.add.at(adjacency, (graph.dst, graph.src), 1)
    cut = [graph.rows(rank) for rank in range(few.world)]
    arguments = [{"part": graph.part(rank), "x": x[mine], "grad": grad[mine]} for rank, mine in enumerate(cut)]
    results = few.run(cases_one_shot.own_columns, arguments, ours=ours)
    for mine, result in zip(cut, results):
        close(result["out"], (adjacency @ adjacency @ x)[mine], "out")
        close(result["x"], (adjacency.T @ adjacency.T @ grad)[mine], "x")
        assert result["names"] == ["h", "once", "twice"]
        columns, rows = result["held"]
        assert columns >= rows == mine.stop - mine.start
        assert result["left"] == [False] * 3
        assert "no ndata['h']; there are: once, twice" in result["refused"]


@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_ours_are_those_of_dgl(few: Workers, kind: str) -> None:
    graph = make(kind, few.world, seed=6)
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((graph.num_nodes, 2)), rng.standard_normal((len(graph.src), 1))
    for rank, result in enumerate(few.run(cases_one_shot.edge_functions, graph.shares(x=x, edges={"w": w}))):
        for name, (ours, theirs) in result.items():
            assert np.array_equal(ours, theirs), name
        mine = graph.edges(rank)
        differences = x[graph.src[mine]] - x[graph.dst[mine]]
        assert sorted(map(tuple, result["edges"][0][:, :2])) == sorted(map(tuple, differences))
        total = np.zeros((graph.num_nodes, 2))
        np.add.at(total, graph.dst[mine], w[mine] * x[graph.src[mine]])
        close(result["sum"][0], total[graph.rows(rank)], "sum")


def test_ndata_of_a_block(few: Workers) -> None:
    graph = make("random", few.world, seed=5)
    arguments = [{"part": graph.part(r), "seeds": np.arange(*graph.start[r : r + 2])[:1]} for r in range(few.world)]
    for said in few.run(cases_one_shot.ndata_of_a_block, arguments):
        assert "use srcdata or dstdata" in said


@pytest.mark.parametrize("turned", [False, True])
def test_seeds_that_do_not_ascend(few: Workers, turned: bool) -> None:
    """One warning, by rank 0, also where the seeds of another worker are those out of order."""
    graph = make("random", few.world, seed=5)
    seeds = [np.arange(*graph.start[rank : rank + 2]) for rank in range(few.world)]
    assert len(seeds[-1]) > 1
    given = [*seeds[:-1], seeds[-1][::-1].copy()] if turned else seeds
    for rank, result in enumerate(few.run(cases_one_shot.seeds_given, graph.shares(ranks={"seeds": given}))):
        assert np.array_equal(result["seeds"], seeds[rank])
        if turned and rank == 0:
            ((message, file),) = result["warned"]
            assert "blocks[-1].seeds" in message and file.endswith("cases_one_shot.py")
        else:
            assert not result["warned"]
