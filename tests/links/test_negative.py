"""Negative pairs: no edges, uniform, and the same for any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.links import cases_negative as cases
from tests.links.graphs import Cut, cut
from tests.support.sessions import Workers

HOW: dict[str, dict[str, Any]] = {
    "as many as edges": {},
    "half as many": {"num_neg_samples": 0.5},
    "undirected": {"num_neg_samples": 2.0, "force_undirected": True},
    "all that there are": {"num_neg_samples": 100.0},
    "none": {"num_neg_samples": 0},
}


def drawn(workers: Workers, some: Cut, seeds: list[int], **how: Any) -> list[np.ndarray]:
    """The pairs of all workers for each seed, ``[2, pairs]`` by original ids, each at the owner of its destination."""
    given = some.shares(**({"batch": how.pop("batch")} if "batch" in how else {}))
    found = workers.run(cases.negatives, given, everyone=some.ids, seeds=seeds, **how)
    for rank, one in enumerate(found):
        assert all(np.isin(pairs[1], some.rows(rank)).all() for pairs in one)
    return [np.concatenate(pairs, 1) for pairs in zip(*found)]


def codes(pairs: np.ndarray, some: Cut) -> np.ndarray:
    found: np.ndarray = pairs[0] * some.graph.num_nodes + pairs[1]
    return found


@pytest.mark.parametrize("how", HOW)
def test_the_same_for_any_number_of_workers(few: Workers, two: Workers, how: str) -> None:
    some, other = cut(few.world, empty=True), cut(2)
    given = HOW[how]
    n, edges = some.graph.num_nodes, np.unique(codes(np.stack([some.whole.src, some.whole.dst]), some))
    loops = np.arange(n) * (n + 1)
    for pairs, again in zip(drawn(few, some, [1, 2], **given), drawn(two, other, [1, 2], **given)):
        found = codes(pairs, some)
        assert len(np.unique(found)) == len(found)
        np.testing.assert_array_equal(np.sort(found), np.sort(codes(again, other)))
        assert not np.isin(found, loops).any()
        free = n * n - len(np.union1d(edges, loops))
        if how == "undirected":
            assert not np.isin(found, edges)[pairs[0] < pairs[1]].any()
            np.testing.assert_array_equal(np.sort(found), np.sort(codes(pairs[::-1], some)))
        else:
            assert not np.isin(found, edges).any()
        wanted = {"half as many": 0.5, "undirected": 2.0, "none": 0.0}.get(how, 1.0)
        assert len(found) == (free if how == "all that there are" else int(len(some.whole.src) * wanted))


def test_uniform(two: Workers) -> None:
    """Chi-square over all pairs that are no edges."""
    some = cut(2)
    n, rounds = some.graph.num_nodes, 150
    counts = np.zeros(n * n)
    for pairs in drawn(two, some, list(range(rounds))):
        counts[codes(pairs, some)] += 1
    edges = np.union1d(codes(np.stack([some.whole.src, some.whole.dst]), some), np.arange(n) * (n + 1))
    free = np.setdiff1d(np.arange(n * n), edges)
    assert counts.sum() == counts[free].sum() == rounds * len(some.whole.src)
    mean = counts.sum() / len(free)
    share = mean / rounds  # pairs of one draw are distinct, so counts vary less than those of a multinomial
    chi_square = ((counts[free] - mean) ** 2).sum() / (mean * (1 - share))
    degrees = len(free) - 1
    assert abs(chi_square - degrees) < 5 * np.sqrt(2 * degrees)


def test_within_graphs(few: Workers, two: Workers) -> None:
    """Of a batch of three graphs: as many in each as it has edges."""
    batch = np.repeat([0, 1, 2], [25, 16, 20])
    some, other = within(cut(few.world, empty=True), batch), within(cut(2), batch)
    (pairs,), (again,) = drawn(few, some, [4], batch=batch), drawn(two, other, [4], batch=batch)
    np.testing.assert_array_equal(np.sort(codes(pairs, some)), np.sort(codes(again, other)))
    assert (batch[pairs[0]] == batch[pairs[1]]).all()
    edges = np.bincount(batch[some.whole.src], minlength=3)
    np.testing.assert_array_equal(np.bincount(batch[pairs[0]], minlength=3), edges)
    assert not np.isin(codes(pairs, some), codes(np.stack([some.whole.src, some.whole.dst]), some)).any()


def within(some: Cut, batch: np.ndarray) -> Cut:
    """Without the edges between graphs."""

    def without(graph: Any, of: np.ndarray) -> Any:
        inner = of[graph.src] == of[graph.dst]
        return graph._replace(src=graph.src[inner], dst=graph.dst[inner])

    return some._replace(graph=without(some.graph, batch[some.ids]), whole=without(some.whole, batch))


ROUNDS = 5


@pytest.mark.parametrize("loops", [True, False])
def test_for_each_edge(few: Workers, two: Workers, loops: bool) -> None:
    """No edges, the same for any number of workers, and uniform."""
    tables = []
    for workers, some in ((few, cut(few.world, empty=True)), (two, cut(2))):
        given = some.shares(x=np.arange(some.graph.num_nodes, dtype=float)[:, None])
        found = workers.run(cases.structured, given, everyone=some.ids, seeds=list(range(ROUNDS)), loops=loops)
        i, j, rows, k = np.concatenate([np.concatenate(one, 1) for one in found], 1)
        np.testing.assert_array_equal(rows, k)
        tables.append(np.sort((i * 61 + j) * 61 + k))
        edges = codes(np.stack([some.whole.src, some.whole.dst]), some)
        np.testing.assert_array_equal(np.sort(i * 61 + j), np.sort(np.repeat(edges, ROUNDS)))
        assert not np.isin(i * 61 + k, edges).any() and (loops or (i != k).all())
        free = np.ones((61, 61))
        free.reshape(-1)[edges] = 0
        free *= 1 if loops else 1 - np.eye(61)
        mean = (free / free.sum(1, keepdims=True))[i].sum(0)
        chi_square = ((np.bincount(k, minlength=61) - mean) ** 2 / mean).sum()
        assert abs(chi_square - 60) < 5 * np.sqrt(2 * 60)
    np.testing.assert_array_equal(*tables)


def test_graph_for_graph(few: Workers) -> None:
    some = cut(few.world, empty=True)
    found = few.run(cases.as_graph, some.shares())
    assert sum(own for own, *_ in found) == found[0][1] == found[0][2]


def test_scores_and_gradients(few: Workers) -> None:
    """By the engine's edges and by fetched rows, against numpy."""
    some = cut(few.world, empty=True)
    z = np.random.default_rng(8).standard_normal((some.graph.num_nodes, 6))
    (pairs,) = drawn(few, some, [9])
    order, grad = [], np.zeros_like(z)
    scores = (z[pairs[0]] * z[pairs[1]]).sum(1)
    slope = 1 / (1 + np.exp(scores))[:, None]
    np.add.at(grad, pairs[0], slope * z[pairs[1]])
    np.add.at(grad, pairs[1], slope * z[pairs[0]])
    for rank, one in enumerate(few.run(cases.both_ways, some.shares(z=z))):
        for way, (got, slopes) in one.items():
            np.testing.assert_allclose(slopes, grad[some.rows(rank)], rtol=1e-11, atol=1e-11, err_msg=way)
            order.append((way, got))
    for way in ("engine", "fetch"):
        np.testing.assert_allclose(np.concatenate([g for w, g in order if w == way]), scores, rtol=1e-12, atol=1e-12)


def test_wrong_arguments(few: Workers) -> None:
    some = cut(few.world)
    texts = {
        "nodes": "7 nodes were given",
        "method": "give 'sparse' or 'dense'",
        "batch": "does not ascend",
        "complete": "20 draws found no negative node",
        "no graph": "a graph split over workers is wanted",
        "PyG's": "sar.negative_sampling",
        "scores": "is NaN",
        "shapes": "[n, k]",
    }
    for said in few.run(cases.wrong, some.shares()):
        for name, text in texts.items():
            assert text in said[name], (name, said[name])


# ---- metrics ------------------------------------------------------------------------


def oracle(positive: np.ndarray, negative: np.ndarray, hits: list[int]) -> dict[str, float]:
    """By definition, one edge after the other."""
    own = negative.ndim == 2
    every = negative.reshape(-1)
    auc = np.mean([(every < p).mean() + 0.5 * (every == p).mean() for p in positive])
    labels, scores = np.r_[np.ones(len(positive)), np.zeros(len(every))], np.r_[positive, every]
    ap, before = 0.0, 0.0
    for bound in np.unique(scores)[::-1]:
        chosen = scores >= bound
        recall = labels[chosen].sum() / len(positive)
        ap, before = ap + (recall - before) * labels[chosen].mean(), recall
    against = negative if own else np.broadcast_to(every, (len(positive), len(every)))
    ranks = [1 + ((a > p).sum() + (a >= p).sum()) / 2 for p, a in zip(positive, against)]
    found = {"auc": auc, "ap": ap, "mrr": np.mean(1 / np.array(ranks))}
    for k in hits:
        hit = [len(a) < k or p > np.sort(a)[-k] for p, a in zip(positive, against)]
        found[f"hits@{k}"] = np.mean(hit)
    return found


@pytest.mark.parametrize("kind", ["ties", "distinct", "own", "float32"])
def test_metrics(few: Workers, kind: str) -> None:
    """Against their definitions; one worker has no edges, and another no pairs."""
    rng = np.random.default_rng(12)
    hits = [1, 3, 20, 10_000]
    sizes = [(0 if rank == 1 else 30, 0 if rank == 0 and few.world > 1 else 40) for rank in range(few.world)]
    shape = (lambda n, m: (n, 5)) if kind == "own" else (lambda n, m: (m,))
    draw = (lambda size: rng.integers(0, 9, size) / 4) if kind != "distinct" else rng.standard_normal
    dtype = np.float32 if kind == "float32" else np.float64
    given = [{"positive": draw(n).astype(dtype), "negative": draw(shape(n, m)).astype(dtype)} for n, m in sizes]
    wanted = oracle(*(np.concatenate([one[name] for one in given]) for name in ("positive", "negative")), hits)
    for found in few.run(cases.metrics, given, hits=hits):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name


def test_metrics_of_torchmetrics(two: Workers) -> None:
    metrics = pytest.importorskip("torchmetrics.functional.classification")
    import torch

    rng = np.random.default_rng(13)
    given = [{"positive": rng.integers(0, 9, 50) / 9, "negative": rng.integers(0, 8, 70) / 9} for _ in range(2)]
    scores = torch.from_numpy(np.concatenate([one[name] for name in ("positive", "negative") for one in given]))
    labels = torch.tensor([1] * 100 + [0] * 140)
    found = two.run(cases.metrics, given, hits=[])[0]
    assert found["auc"] == pytest.approx(float(metrics.binary_auroc(scores, labels)), abs=1e-6)  # which are float32
    assert found["ap"] == pytest.approx(float(metrics.binary_average_precision(scores, labels)), abs=1e-6)


def test_no_scores(two: Workers) -> None:
    nothing = np.zeros(0)
    found = two.run(cases.metrics, [{"positive": nothing, "negative": nothing}] * 2, hits=[1])[0]
    assert found == dict.fromkeys(["auc", "ap", "mrr", "hits@1"])
