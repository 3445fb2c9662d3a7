"""Visits of in-edges, fetched rows, and the columns of a relation, against numpy on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.distributed import cases_stream
from tests.support import hetero
from tests.support.graphs import KINDS, Graph, close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers


def fields(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    n = graph.num_nodes
    return [
        rng.standard_normal((n, 3, 2)).astype(np.float32),
        np.arange(n, dtype=np.int64),
        rng.integers(0, 2, (n, 5)).astype(bool),
        rng.standard_normal((n, 1)),
        rng.integers(-5, 5, (n, 47)).astype(np.int8),
        np.zeros((n, 0), np.float32),
        rng.standard_normal(n).astype(np.float16),
    ]


def check_visits(graph: Graph, tensors: list[np.ndarray], results: list[Any], ids: bool = True) -> None:
    for rank, result in enumerate(results):
        mine = graph.edges(rank)
        seen = result["seen"]
        owner = np.searchsorted(graph.start, graph.src[mine], side="right") - 1
        # peers in the order of rounds, the own rank first
        peers = [block["peer"] for block in seen]
        steps = [(rank - p) % graph.world for p in peers]
        assert steps == sorted(steps) and set(peers) == set(owner.tolist())
        dst = np.concatenate([np.zeros(0, np.int64)] + [block["dst"] for block in seen]) + graph.start[rank]
        if not ids:
            assert all(len(block["eid"]) == 0 for block in seen)
            assert np.array_equal(np.sort(dst), np.sort(graph.dst[mine]))
            continue
        eid = np.concatenate([np.zeros(0, np.int64)] + [block["eid"] for block in seen])
        assert np.array_equal(np.sort(eid), np.arange(len(mine))), "every edge once"
        assert np.array_equal(graph.dst[mine][eid], dst)
        for block in seen:
            assert (owner[block["eid"]] == block["peer"]).all()
        for number, whole in enumerate(tensors):
            got = [block["rows"][number] for block in seen]
            expected = whole[graph.src[mine][eid]]
            assert all(g.dtype == expected.dtype and g.shape[1:] == expected.shape[1:] for g in got)
            assert not got or np.array_equal(np.concatenate(got), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_edge_is_visited_once(workers: Workers, kind: str) -> None:
    graph = make(kind, workers.world, seed=31)
    tensors = fields(graph)
    arguments = graph.shares(fields=tensors)
    for max_edges in (1, 7, 1 << 40):
        results = workers.run(cases_stream.visits, arguments, max_edges=max_edges)
        check_visits(graph, tensors, results)


@pytest.mark.parametrize("of", ["none", "empty", "small_window", "no_ids"])
def test_visits_of_other_shapes(workers: Workers, of: str) -> None:
    graph = make("random", workers.world, seed=32)
    tensors = {"none": [], "empty": [np.zeros((graph.num_nodes, 0))]}.get(of, fields(graph))
    arguments = graph.shares(fields=tensors)
    # the smallest window there is: frames of a few rows
    window = 16 * 4096 * max(1, workers.world - 1) if of == "small_window" else 0
    results = workers.run(cases_stream.visits, arguments, max_edges=50, window=window, edge_ids=of != "no_ids")
    check_visits(graph, tensors, results, of != "no_ids")


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_go_home(workers: Workers, kind: str) -> None:
    graph = make(kind, workers.world, seed=33)
    rng = np.random.default_rng(4)
    n = graph.num_nodes
    tensors = [
        rng.standard_normal((n, 3)).astype(np.float32),
        rng.standard_normal((n, 2, 2)),
        rng.standard_normal(n),
        np.zeros((n, 0)),
        np.arange(n),
    ]
    g, w = rng.standard_normal(n), rng.standard_normal(len(graph.src))
    for wants in ([True] * 4 + [False], [True, False, True, True, False]):
        own = {"wants": [[True] * 4 + [False]] + [wants] * (graph.world - 1)}  # rank 0 wants all, the others some
        arguments = graph.shares({"w": w}, own, fields=tensors, g=g)
        results = workers.run(cases_stream.gradients, arguments, max_edges=60)
        for number, x in enumerate(tensors[:-1]):
            along = (w * g[graph.dst]).reshape(-1, *[1] * (x.ndim - 1))
            expected = np.ones(x.shape)
            np.add.at(expected, graph.src, 2 * x[graph.src].astype(np.float64) * along)
            for rank, result in enumerate(results):
                if not arguments[rank]["wants"][number]:
                    assert result[number] is None
                else:
                    close(result[number], expected[graph.rows(rank)].astype(x.dtype), f"field {number}, rank {rank}")


def test_gradients_repeat_to_the_bit(workers: Workers) -> None:
    graph = make("random", workers.world, seed=34)
    rng = np.random.default_rng(5)
    x, g = (rng.standard_normal((graph.num_nodes, 4)).astype(np.float32) for _ in range(2))
    assert all(workers.run(cases_stream.repeated, graph.shares(x=x, g=g)))


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("how", ["custom", "remote", "interrupt", "signal", "between"])
def test_an_exception_in_a_visit(two: Workers, how: str, backward: bool) -> None:
    """It leaves on its own rank as it is, and the others hear of it."""
    graph = make("random", 2, seed=35)
    results = two.run(cases_stream.exception, graph.shares(), how=how, backward=backward)
    two.pool._session = None  # it has ended
    custom = "Custom: out of spoons"
    expected = {"custom": custom, "remote": custom, "interrupt": "KeyboardInterrupt: pressed"}
    assert results[0] == expected.get(how, "KeyboardInterrupt: ")
    assert results[1].startswith("RemoteError: ") and "rank 0" in results[1] and results[0].split(": ")[0] in results[1]


def test_arguments_that_make_no_sense(workers: Workers) -> None:
    graph = make("random", workers.world, seed=36)
    for rank, found in enumerate(workers.run(cases_stream.refused, graph.shares())):
        n = int(np.diff(graph.start)[rank])
        assert len(found) == (8 if graph.world == 1 else 9), found
        assert f"fields[0] has shape ({n + 1}, 3)" in found[0] and f"{n} source nodes" in found[0]
        assert "max_edges is 0" in found[2]
        assert found[6].startswith("TypeError: fields[0] is torch.int64")
        assert "return_grads[0]" in found[7]


# ---- rows and edges by number ------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_fetch(workers: Workers, kind: str) -> None:
    """Rows asked for in any order, some twice, some ranks asking for none; and their gradients."""
    graph = make(kind, workers.world, seed=41)
    n = graph.num_nodes
    kinds = [((3, 2), "float32"), ((47,), "float64"), ((), "float64"), ((0,), "float32")]
    for turn, (shape, dtype) in enumerate(kinds):
        rng = np.random.default_rng(6 + turn)
        x = rng.standard_normal((n, *shape)).astype(dtype)
        asks, grads = [], []
        for rank in range(graph.world):
            sizes = [0 if (rank + turn) % 3 == 0 else int(rng.integers(1, 90)) for _ in range(2)]
            asks.append([rng.random(size) for size in sizes])
            grads.append([rng.standard_normal((size, *shape)).astype(dtype) for size in sizes])
        wants = [rank == 0 or turn == 1 for rank in range(graph.world)]
        arguments = graph.shares(x=x, ranks={"asks": asks, "grads": grads, "wants": wants})
        window = 65536 * max(1, workers.world - 1) if turn == 1 else 0
        results = workers.run(cases_stream.fetched, arguments, window=window)
        expected = np.zeros((n, *shape))
        for rank, result in enumerate(results):
            check_columns(graph, rank, result)
            nodes = graph.start[result["owner"]] + result["row"]
            for columns, got, grad in zip(result["columns"], result["got"], grads[rank]):
                assert np.array_equal(got, x[nodes[columns]]) and got.dtype == x.dtype
                np.add.at(expected, nodes[columns], grad[: len(columns)])
            assert all(result["requires_grad"])
        for rank, result in enumerate(results):
            if arguments[rank]["wants"]:
                close(result["grad"], expected[graph.rows(rank)].astype(dtype), f"gradient of rank {rank}")
            else:
                assert result["grad"] is None


def check_columns(graph: Graph, rank: int, result: Any) -> None:
    """Own rows, then the rows that own edges read of the peers in the order of rounds."""
    world = graph.world
    own = np.diff(graph.start)[rank]
    sources = np.unique(graph.src[graph.edges(rank)])
    owner = np.searchsorted(graph.start, sources, side="right") - 1
    expected = [(rank, row) for row in range(own)]
    for r in range(1, world):
        q = (rank - r) % world
        expected += [(q, s - graph.start[q]) for s in sources[owner == q]]
    found = list(zip(result["owner"].tolist(), result["row"].tolist()))  # those of a peer in an order of their own
    assert [q for q, _ in found] == [q for q, _ in expected] and sorted(found) == sorted(expected)
    for q in range(world):  # four groups, by the price of a sum at which rows travel, each in the order of rows
        rows = result["row"][result["owner"] == q]
        assert (np.diff(rows) < 0).sum() <= (0 if q == rank else 3)
    assert result["owner"].dtype == result["row"].dtype == np.int64


def test_fetch_without_gradients(workers: Workers) -> None:
    graph = make("empty_worker", workers.world, seed=42)
    rng = np.random.default_rng(8)
    for x in (np.arange(graph.num_nodes), rng.integers(0, 2, (graph.num_nodes, 3)).astype(bool)):
        arguments = [
            {"part": graph.part(rank), "asks": [rng.random(20)], "x": x[graph.rows(rank)], "grads": [], "wants": False}
            for rank in range(graph.world)
        ]
        for result in workers.run(cases_stream.fetched, arguments):
            nodes = graph.start[result["owner"]] + result["row"]
            assert np.array_equal(result["got"][0], x[nodes[result["columns"][0]]])
            assert result["requires_grad"] == [False] and result["grad"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_in_edges(workers: Workers, kind: str) -> None:
    graph = make(kind, workers.world, seed=43)
    rng = np.random.default_rng(9)
    counts = np.diff(graph.start)
    rows = [rng.integers(0, count, 2 * count) if count else np.zeros(0, np.int64) for count in counts]
    for rank, result in enumerate(workers.run(cases_stream.in_edges, graph.shares(ranks={"rows": rows}))):
        mine = graph.edges(rank)
        indptr, columns, edges = result["edges"]
        wanted = [np.flatnonzero(graph.dst[mine] == graph.start[rank] + row) for row in rows[rank]]
        assert indptr.tolist() == np.cumsum([0] + [len(w) for w in wanted]).tolist()
        assert edges.tolist() == [edge for w in wanted for edge in w]
        assert np.array_equal((graph.start[result["owner"]] + result["row"])[columns], graph.src[mine][edges])
        assert [text.split(" ")[0] for text in result["refused"]] == ["ValueError:", "ValueError:", "TypeError:"]
        assert f"{counts[rank]} destination nodes" in result["refused"][0]


def test_fetches_that_are_refused(workers: Workers) -> None:
    graph = make("random", workers.world, seed=44)
    for found in workers.run(cases_stream.refused_fetches, graph.shares()):
        assert len(found) == (6 if workers.world == 1 else 7), found
        assert "columns[0] is -1" in found[1] and "boundary rows" in found[1]
        assert [text.split(":")[0] for text in found[:6]] == ["ValueError"] * 2 + ["TypeError"] + ["ValueError"] * 2 + [
            "TypeError"
        ]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_relations_between_types(pool: Pool, world: int) -> None:
    """Source and destination rows that differ in number, workers without either, relations of few edges."""
    workers = Workers(pool, world, "shm")
    cut, ends = hetero.Cut(workers.world), hetero.edges()
    x, g = hetero.features(1), hetero.features(2)
    arguments = [
        {
            "part": cut.part(rank, ends),
            "x": {kind: v[cut.rows(kind, rank)] for kind, v in x.items()},
            "g": {kind: v[cut.rows(kind, rank)] for kind, v in g.items()},
        }
        for rank in range(workers.world)
    ]
    results = workers.run(cases_stream.bipartite, arguments)
    for number, (source, name, target) in enumerate(hetero.TRIPLES):
        src, dst = ends[source, name, target]
        out, grad = np.zeros_like(g[target]), np.zeros_like(x[source])
        np.add.at(out, dst, x[source][src])
        np.add.at(grad, src, g[target][dst])
        for rank, result in enumerate(results):
            for got, expected, kind in zip(result[number], (out, grad, out, grad), (target, source) * 2):
                close(got, expected[cut.rows(kind, rank)], f"{name} on rank {rank}")
