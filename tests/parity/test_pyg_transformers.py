"""Graph transformers against PyG on the whole graph: attention of each node to the nodes of all workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sar.nn
from tests.parity import cases_pyg_transformers as cases
from tests.support.graphs import Graph, close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")


def drawn(world: int) -> tuple[Graph, np.ndarray, torch.Tensor]:
    """A graph, rows of its nodes, and its edges. Of three and of four workers one has no node."""
    graph = make("empty_worker" if world in (3, 4) else "random", world, seed=101)
    x = np.random.default_rng(102).standard_normal((graph.num_nodes, cases.IN))
    return graph, x, torch.from_numpy(np.stack([graph.src, graph.dst]))


def as_alone(workers: Workers, name: str, vector: bool = True) -> None:
    graph, x, whole = drawn(workers.world)
    grad = np.random.default_rng(103).standard_normal((graph.num_nodes, cases.OUT))
    expected = cases.step(name, x, whole, grad)
    found = workers.run(cases.on_worker, graph.shares(x=x, grad=grad), name=name, vector=vector)
    for rank, one in enumerate(found):
        for key, value in expected["rows"].items():
            close(one["rows"][key], value[graph.rows(rank)], f"{key} of rank {rank}", 100)
        assert one["same"].keys() == expected["same"].keys()
        for key, value in expected["same"].items():
            close(one["same"][key], value, f"{key} of rank {rank}", 100)


@pytest.mark.parametrize("name", cases.MODELS)
def test_model(few: Workers, name: str) -> None:
    """Results, gradients of inputs and parameters, and buffers; in training and evaluation."""
    as_alone(few, name)


@pytest.mark.parametrize("name", ["sgformer", "polynormer", "performer"])
def test_without_a_batch_vector(pool: Pool, name: str) -> None:
    """All nodes are one graph; PyG's SGFormer and Polynormer want a vector that says so."""
    as_alone(Workers(pool, 3, "shm"), name, False)


def test_eight_workers(pool: Pool) -> None:
    as_alone(Workers(pool, 8, "shm"), "sgformer_heads")


@pytest.mark.parametrize(
    "name", ["performer", "own", *(pytest.param(name, marks=pytest.mark.full) for name in ("sgformer", "polynormer"))]
)
def test_curve(pool: Pool, name: str) -> None:
    """The losses of 20 epochs."""
    graph, x, whole = drawn(3)
    y = np.random.default_rng(104).integers(0, cases.OUT, graph.num_nodes)
    known: dict[str, Any] = {"name": name, "nodes": graph.num_nodes}
    expected = cases.losses(x=x, y=y, index=whole, **known)
    found = Workers(pool, 3, "shm").run(cases.losses_on_worker, graph.shares(x=x, y=y), **known)
    np.testing.assert_allclose(found, [expected] * 3, rtol=1e-9)
    assert expected[-1] < 0.9 * expected[0]


@pytest.mark.parametrize(("heads", "width"), [(1, 16), (4, 8)])
def test_what_travels(two: Workers, heads: int, width: int) -> None:
    """A matrix and a vector for each head, each way, and a few numbers on which workers agree."""
    graph, x, _ = drawn(2)
    rows = np.tile(x, 4)[:, : heads * width]
    for found in two.run(cases.travelled, graph.shares(x=rows), heads=heads, width=width):
        for kind, (forward, backward, told, became) in found.items():
            projected = int(width * np.log(width)) if kind == "PerformerAttention" else width
            floats = heads * (projected * width + projected)
            assert 4 * floats < backward <= forward <= 4 * floats + 96, kind
            assert became == "over all nodes" and told == 2 * 4 * (floats + 1)


def test_refused(two: Workers) -> None:
    graph, x, _ = drawn(2)
    texts = {
        "Polynormer, not prepared": "model = sar.prepare(model, data)",
        **dict.fromkeys(["SGFormer of two graphs", "performer of two graphs"], "its batch vector names 2"),
        "widths": "q (3, 2), k (3, 4) and v (3, 4) must be",
        "rows": "v (4, 2) must be",
        "a vector": "q (3,)",
        "afterwards": "2.0",
    }
    for said in two.run(cases.said, graph.shares(x=x)):
        assert said.keys() == texts.keys()
        for name, text in said.items():
            assert texts[name] in text, f"{name}: {text}"


def test_without_workers() -> None:
    """Code that trains on the workers runs alone as well; sums of bfloat16 are float32's."""
    q, k, v = (torch.randn(500, 2, 4, dtype=torch.float64) for _ in range(3))
    weighted, total, nodes = sar.nn.functional.linear_attention(q, k, v)
    weights = torch.einsum("ihd,jhd->hij", q, k)
    close(weighted, torch.einsum("hij,jhm->ihm", weights, v), "weighted", 100)
    close(total, weights.sum(2).T, "total", 100)
    assert nodes == 500
    low = [t.bfloat16() for t in (q.abs(), k.abs(), v)]
    exact = sar.nn.functional.linear_attention(*(t.float() for t in low))
    with torch.autocast("cpu", torch.bfloat16):
        found = sar.nn.functional.linear_attention(*low)
    assert found.weighted.dtype == torch.bfloat16 and torch.equal(found.weighted, exact.weighted.bfloat16())
