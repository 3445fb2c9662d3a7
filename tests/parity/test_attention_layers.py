"""Attention layers: one of a user's own against DGL, and that none of them makes floats of the size of edges."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest
import torch

from tests.parity import cases_attention, cases_expression
from tests.support.graphs import Graph, close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers


def run(workers: Workers, graph: Graph, training: bool) -> None:
    options: Dict[str, Any] = {"features": 5, "heads": 3, "width": 8, "dropout": 0.4}
    rng = np.random.default_rng(61)
    edges = len(graph.src)
    x, grad = rng.standard_normal((graph.num_nodes, 5)), rng.standard_normal((graph.num_nodes, 3, 8))
    near, far = rng.standard_normal((2, edges, 3, 1))
    keys = 7 * np.arange(edges, dtype=np.int64) + 2
    given = graph.shares({"near": near, "far": far, "keys": keys}, x=x, grad=grad)
    results = workers.run(cases_attention.gated, given, options=options, training=training)
    mask = np.ones((edges, 3, 1))
    for rank, result in enumerate(results):
        mask[graph.edges(rank)] = result["mask"]
    if training and edges > 100:
        assert 0.5 < (mask != 0).mean() < 0.7
    whole = graph.of_dgl()
    layer = cases_attention.made(3, options)
    leaves = [torch.from_numpy(a.copy()).requires_grad_() for a in (x, near, far)]
    out = layer(whole, *leaves, mask=torch.from_numpy(mask))
    out.backward(torch.from_numpy(grad))
    expected = [out.detach(), *(t.grad for t in leaves)]
    for rank, result in enumerate(results):
        picks = [graph.rows(rank), graph.rows(rank), graph.edges(rank), graph.edges(rank)]
        names = ("output", "gradient of x", "gradient of near", "gradient of far")
        for name, pick, got, want in zip(names, picks, result["found"], expected):
            close(got, want.numpy()[pick], f"{name}, rank {rank}", 10)
    for i, p in enumerate(layer.parameters()):
        assert p.grad is not None
        close(sum(r["found"][4 + i] for r in results), p.grad.numpy(), f"gradient of parameter {i}", 100)


@pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])
@pytest.mark.parametrize("kind", ["random", "empty_worker", "hub", "one_node"])
def test_a_layer_of_ones_own(few: Workers, kind: str, training: bool) -> None:
    run(few, make(kind, few.world, seed=62), training)


def test_masks_do_not_depend_on_the_number_of_workers(pool: Pool) -> None:
    """One graph, cut for 1, 2, 4 and 8 workers: one mask, by the original ids of edges."""
    graph = make("random", 1, seed=63)
    keys = 7 * np.arange(len(graph.src), dtype=np.int64) + 2
    ones = np.ones((len(graph.src), 3))
    drawn = []
    for world in (1, 2, 4, 8):
        cut = graph._replace(start=np.linspace(0, graph.num_nodes, world + 1).astype(np.int64))
        given = cut.shares({"tensors": [ones], "grad": ones, "keys": keys})
        program = ["dropout", ["load", "e", 0], 0.4, 99]
        results = Workers(pool, world, "shm").run(
            cases_expression.expression, given, program=program, reduce=None, needs=[False]
        )
        mask = np.empty_like(ones)
        for rank, result in enumerate(results):
            mask[cut.edges(rank)] = result["out"]
        drawn.append(mask)
    assert 0 < (drawn[0] == 0).sum() < drawn[0].size
    for mask in drawn[1:]:
        np.testing.assert_array_equal(mask, drawn[0])


def dense(world: int) -> Graph:
    """So many edges for its nodes that nothing but a buffer of edges is as large as a float for each of them."""
    nodes, edges = 250, 80_000
    rng = np.random.default_rng(64)
    start = np.linspace(0, nodes, world + 1).astype(np.int64)
    return Graph(nodes, rng.integers(0, nodes, edges), rng.integers(0, nodes, edges), start)


@pytest.mark.parametrize("world", [1, 2])
def test_no_float_buffer_of_edge_size(pool: Pool, world: int) -> None:
    """Neither torch nor the engine allocates a float per edge at once, in forward or backward."""
    graph = dense(world)
    x = np.random.default_rng(65).standard_normal((250, 64)).astype(np.float32)
    given = graph.shares(x=x)
    workers = Workers(pool, world, "shm")
    for found in workers.run(cases_attention.allocations, given):
        assert set(found) == set(cases_attention.LAYERS)
        for name, sizes in found.items():
            limit = 4 * sizes["edges"]
            assert sizes["torch"] < limit, f"{name}: torch allocated {sizes['torch']} bytes at once, not below {limit}"
            for purpose, growth in sizes["engine"].items():
                assert growth < limit, f"{name}: {purpose} grew by {growth} bytes, {limit} are a float per edge"
    for found in workers.run(cases_attention.allocations, given, materialize=True):  # it would be seen
        assert all(sizes["torch"] >= 4 * 64 * sizes["edges"] for sizes in found.values())


@pytest.mark.parametrize("world", [1, 2])
def test_computing_an_edge_tensor_is_logged_once(pool: Pool, world: int) -> None:
    graph = make("random", world, seed=66)
    for said in Workers(pool, world, "shm").run(cases_attention.computed, graph.shares()):
        assert len(said) == 2, said
        assert "cumsum" in said[0] and "sort" in said[1] and all("one row per edge" in line for line in said)
