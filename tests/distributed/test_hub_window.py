"""Rows and columns with so many edges that they are cut into tasks, and edges from all peers through a small window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.distributed import cases_hub_window
from tests.distributed.cases_hub_window import layer
from tests.support.graphs import Graph, close
from tests.support.sessions import Workers

HUB_EDGES = 70_000
"""In and out of the hub: more than twice the edges of a segment, for all that is computed here."""


def star(world: int) -> Graph:
    """A hub that reads all nodes, and that all read, among edges at random."""
    rng = np.random.default_rng(70 + world)
    n = 403
    start = np.linspace(0, n, world + 1).astype(np.int64)
    hub = int(start[world // 2])  # the first node of a worker in the middle
    busy = np.arange(0, n - 5)  # the last ones are isolated
    src = np.concatenate([rng.choice(busy, HUB_EDGES), np.full(HUB_EDGES, hub), rng.choice(busy, 4000)])
    dst = np.concatenate([np.full(HUB_EDGES, hub), rng.choice(busy, HUB_EDGES), rng.choice(busy, 4000)])
    order = rng.permutation(len(src))
    return Graph(n, src[order].astype(np.int64), dst[order].astype(np.int64), start)


def whole(graph: Graph, name: str, x: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    rows = torch.from_numpy(x.copy()).requires_grad_()
    model = layer(name, x.shape[1], str(x.dtype))
    out = model(graph.of_dgl(), rows)
    out.backward(torch.from_numpy(grad))
    return {"out": out.detach(), "x": rows.grad, **{n: p.grad for n, p in model.named_parameters()}}


@pytest.mark.parametrize("name", ["mean", "max", "attention"])
@pytest.mark.parametrize("world", [2, 4])
def test_a_hub_through_a_small_window(pool: Any, world: int, name: str) -> None:
    """Outputs and gradients are DGL's; a second run, and one through a large window, have what they should."""
    graph = star(world)
    rng = np.random.default_rng(71)
    x = rng.standard_normal((graph.num_nodes, 20))
    shape = (graph.num_nodes, 4, 16) if name == "attention" else (graph.num_nodes, 24)
    grad = rng.standard_normal(shape)
    expected = whole(graph, name, x, grad)
    arguments = graph.shares(x=x, grad=grad)
    window = 64 << 10  # bytes a link, the least there is
    results = Workers(pool, world, "shm").run(
        cases_hub_window.rows_of_hubs, arguments, name=name, window=window * (world - 1), repeats=2
    )
    for rank, (first, second) in enumerate(results):
        assert first["window"] == window * (world - 1)
        close(first["out"], expected["out"][graph.rows(rank)], "out")
        close(first["x"], expected["x"][graph.rows(rank)], "gradient of x", 10)
        for key in set(expected) - {"out", "x"}:
            close(first[key], expected[key], key, 10)
        for key, value in first.items():
            np.testing.assert_array_equal(value, second[key], f"{key} of a second run")
