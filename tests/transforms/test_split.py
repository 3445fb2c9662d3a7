"""Whole-graph utilities on split graphs, against dense matrices, PyG and DGL on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.links.graphs import Cut
from tests.support.sessions import Workers
from tests.transforms import cases_split as cases, graphs

MEMORY = 4 * 8 * graphs.NODES * 16  # of a block of 16 columns


def whole(some: Cut, found: list[Any]) -> np.ndarray:
    """Rows of all workers by original ids."""
    return np.asarray(np.concatenate(found)[some.ids.argsort()])


def shares(some: Cut, **nodes: np.ndarray) -> list[dict[str, Any]]:
    """With original ids, and the weights of edges."""
    given = {name: value[some.ids] for name, value in nodes.items()}
    original = some.graph._replace(src=some.ids[some.graph.src], dst=some.ids[some.graph.dst])
    return some.graph.shares(edges={"weight": graphs.weights(original)}, ids=some.ids, **given)


def near(found: Any, expected: Any, bound: float = 1e-10) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound * max(1, np.abs(expected).max(initial=0)))


def test_of_a_directed_graph(few: Workers) -> None:
    some = graphs.directed(few.world)
    begin = np.random.default_rng(4).random((some.graph.num_nodes, 2))
    found = few.run(cases.own, shares(some, begin=begin), memory=MEMORY)
    plain, weighted = (graphs.matrix(some.whole, w) for w in (None, graphs.weights(some.whole)))
    got = {name: whole(some, [one[name] for one in found]) for name in found[0]}
    near(got["random walk"], graphs.landing(plain, 5), 1e-6)
    near(got["weighted random walk"], graphs.landing(weighted, 5))
    near(got["pagerank"], graphs.pagerank(plain, 0.85, np.ones(len(plain))), 1e-9)
    expected = [graphs.pagerank(weighted, 0.5, column) for column in begin.T]
    near(got["weighted pagerank"], np.stack(expected, 1), 1e-12)
    near(got["degree profile"], graphs.degree_profile(plain), 1e-6)


def test_of_an_undirected_graph(few: Workers, two: Workers) -> None:
    """Eigenvalues as often as they occur, eigenvectors that are orthonormal, and the same for any number of workers
    where they are defined."""
    some, other = graphs.undirected(few.world), graphs.undirected(2)
    found, again = (w.run(cases.undirected, shares(c), memory=MEMORY) for w, c in ((few, some), (two, other)))
    plain, weighted = (graphs.matrix(some.whole, w) for w in (None, graphs.weights(some.whole)))
    near(whole(some, [one["random walk"] for one in found]), graphs.landing(weighted, 6))
    tried = {
        "plain": graphs.laplacian(plain),
        "weighted": graphs.laplacian(weighted),
        "loops": graphs.laplacian(plain, self_loops=True),
        "all": graphs.laplacian(plain),
        "signs": graphs.laplacian(plain),
    }
    for name, matrix in tried.items():
        values = found[0][name][1]
        expected = np.linalg.eigvalsh(matrix)
        near(values, expected[1 : 1 + len(values)])
        for one in found:
            np.testing.assert_array_equal(one[name][1], values)
        vectors = whole(some, [one[name][0] for one in found])
        near(matrix @ vectors, vectors * values, 1e-9)
        near(vectors.T @ vectors, np.eye(len(values)))
        if name in ("plain", "weighted", "signs"):
            same = whole(other, [one[name][0] for one in again])
            gap = np.minimum(np.diff(expected)[: len(values)], np.diff(expected)[1 : len(values) + 1])
            assert (gap > 1e-3).sum() >= 5
            quotient = (vectors * same).sum(0)[gap > 1e-3]
            near(quotient if name != "signs" else np.abs(quotient), np.ones(len(quotient)))
    signs = [whole(some, [one[name][0] for one in found]) for name in ("plain", "signs")]
    assert (np.sign((signs[0] * signs[1]).sum(0)) < 0).any()
    for kind in (None, "sym", "rw"):
        most = np.linalg.eigvals(graphs.laplacian(weighted, kind)).real.max()
        near([one[f"largest {kind}"] for one in found], [most] * few.world)


def test_functions_of_pyg(few: Workers) -> None:
    pytest.importorskip("torch_geometric")
    some = graphs.undirected(few.world)
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((graphs.NODES, 3)), rng.integers(0, 4, graphs.NODES)
    found = few.run(cases.of_pyg, shares(some, x=x, y=y))
    index = torch.from_numpy(np.stack([some.whole.src, some.whole.dst]))
    expected = cases.pyg(index, graphs.NODES, graphs.weights(some.whole), x, y)
    assert set(expected) == set(found[0])
    for name, value in expected.items():
        if name.startswith(("homophily", "largest")):
            near([one[name] for one in found], [value] * few.world, 1e-6)
            continue
        got = whole(some, [one[name] for one in found])
        assert torch.from_numpy(got).dtype == value.dtype, name
        if name == "eigenvectors":
            product = graphs.laplacian(graphs.matrix(some.whole)) @ got
            near(product, got * np.linalg.eigvalsh(graphs.laplacian(graphs.matrix(some.whole)))[1:5], 1e-6)
        else:
            near(got, value.numpy(), 1e-10 if name.startswith("laplacian") else 1e-6)


def test_functions_of_dgl(few: Workers) -> None:
    pytest.importorskip("dgl")
    some = graphs.undirected(few.world)
    y = np.random.default_rng(6).integers(0, 4, graphs.NODES)
    found = few.run(cases.of_dgl, some.graph.shares(y=y))
    for name, value in cases.dgl_alone(some.graph.of_dgl(), y).items():
        for rank, one in enumerate(found):
            near(one[name], np.asarray(value[some.graph.rows(rank)] if name == "walk" else value), 1e-5)


def test_errors_on_every_worker(two: Workers) -> None:
    some = graphs.directed(2)
    texts = {
        "directed": "every edge has its reverse",
        "weights": "one for each of this worker's",
        "too many": "61 eigenvectors of a graph of 61 nodes",
        "length": "walk_length is 0",
        "alpha": "alpha is 1.0",
        "begin": "numbers of at least 0",
        "iterations": "after 2 products",
        "method": "give one of 'edge', 'node', 'edge_insensitive'",
        "no graph": "a graph split over workers is wanted",
    }
    for rank, said in enumerate(two.run(cases.wrong, some.graph.shares(ids=some.ids))):
        for name, text in texts.items():
            assert text in said[name], said[name]
        assert said["weights"].startswith("ValueError" if rank == 0 else "RemoteError")
