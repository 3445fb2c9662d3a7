"""Python message and reduce functions against DGL on the whole graph: values and all gradients, element by element."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_message, message_functions
from tests.parity.message_functions import WIDTH
from tests.parity.message_oracle import same, whole
from tests.support.graphs import Graph, close, make
from tests.support.sessions import Workers

NAMES = [model.__name__ for model in message_functions.MODELS]


def given(graph: Graph, dtype: str, seed: int = 1) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    n, e = graph.num_nodes, len(graph.src)
    columns = {name: rng.standard_normal((n, WIDTH)).astype(dtype) for name in "xy"}
    columns["label"], columns["grade"] = rng.integers(0, 3, n), rng.integers(1, 4, n)
    weights = {"w": rng.standard_normal((e, WIDTH)).astype(dtype), "kind": (rng.random(e) * 2.1).astype(np.int64)}
    return columns, weights


def check(few: Workers, graph: Graph, name: str, dtype: str, settings: dict[str, Any] | None = None) -> None:
    columns, weights = given(graph, dtype)
    full, nodes, edges = whole(graph, columns, weights)
    torch.manual_seed(3)
    net = getattr(message_functions, name)(dgl.function).to(getattr(torch, dtype))
    with full.local_scope():
        out = net(full)
    upstream = np.random.default_rng(2).standard_normal(tuple(out.shape)).astype(dtype)
    out.backward(torch.from_numpy(upstream))
    expected = {"nodes": cases_message.gradients(nodes), "edges": cases_message.gradients(edges)}
    arguments = graph.shares(columns=columns, edges={"weights": weights})
    for rank, one in enumerate(arguments):
        one["upstream"] = upstream[graph.edges(rank) if net.on_edges else graph.rows(rank)]
    loose = 20.0 if dtype == "float32" else 1.0
    results = few.run(cases_message.model, arguments, name=name, settings=settings)
    for rank, got in enumerate(results):
        where = graph.edges(rank) if net.on_edges else graph.rows(rank)
        close(got["out"], out.detach().numpy()[where], f"rank {rank}", loose)
        same(graph, rank, got, expected, name, loose)
        for key, parameter in net.named_parameters():
            if parameter.grad is None:
                assert got["parameters"][key] is None, key
            else:
                close(got["parameters"][key], parameter.grad.numpy(), f"gradient of {key}, rank {rank}", 10 * loose)
    for key, buffer in net.named_buffers():
        counted = sum(got["buffers"][key] for got in results)
        calls = sum(len(graph.edges(rank)) > 0 for rank in range(graph.world)) if key == "calls" else None
        close(counted, buffer.numpy() if calls is None else np.array([calls], dtype=dtype), f"buffer {key}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["random", "empty_worker", "hub"])
def test_functions(few: Workers, kind: str, name: str) -> None:
    check(few, make(kind, few.world), name, "float64")


@pytest.mark.parametrize("name", NAMES)
def test_small_blocks(few: Workers, name: str) -> None:
    """Many blocks, and several frames of rows."""
    check(few, make("random", few.world, seed=4), name, "float32", {"block_bytes": 1})


@pytest.mark.parametrize("name", NAMES)
def test_keeping_what_forward_computed(few: Workers, name: str) -> None:
    check(few, make("random", few.world, seed=5), name, "float64", {"disable_sr": True, "block_bytes": 1})


@pytest.mark.parametrize("name", ["Plain", "Parameters", "Extremum", "Typed"])
@pytest.mark.parametrize("kind", ["one_node", "no_edges_between"])
def test_odd_graphs(few: Workers, kind: str, name: str) -> None:
    check(few, make(kind, few.world), name, "float64")


@pytest.mark.parametrize("name", ["Plain", "Parameters", "DestinationOnly", "Both"])
def test_blocks(few: Workers, name: str) -> None:
    """Edges into some nodes alone; a worker has no seeds."""
    graph = make("random", few.world, seed=6)
    columns, weights = given(graph, "float64")
    full, nodes, _ = whole(graph, columns, weights)
    torch.manual_seed(3)
    net = getattr(message_functions, name)(dgl.function).double()
    with full.local_scope():
        out = net(full)
    seeds = np.random.default_rng(2).permutation(graph.num_nodes)[::2]
    if graph.world > 1:
        seeds = seeds[seeds >= graph.start[1]]
    upstream = np.zeros(tuple(out.shape))
    upstream[seeds] = np.random.default_rng(3).standard_normal((len(seeds), out.shape[1]))
    out.backward(torch.from_numpy(upstream))
    expected = cases_message.gradients(nodes)
    arguments = graph.shares(columns=columns, edges={"weights": weights})
    own = [np.sort(seeds[(seeds >= graph.start[r]) & (seeds < graph.start[r + 1])]) for r in range(graph.world)]
    for rank, one in enumerate(arguments):
        one.update(seeds=own[rank], upstream=upstream[own[rank]])
    for rank, got in enumerate(few.run(cases_message.on_a_block, arguments, name=name)):
        close(got["out"], out.detach().numpy()[own[rank]], f"rank {rank}")
        for column, grad in expected.items():
            close(got["nodes"][column], grad[graph.rows(rank)], f"gradient of {column}, rank {rank}")
        for key, parameter in net.named_parameters():
            assert parameter.grad is not None
            close(got["parameters"][key], parameter.grad.numpy(), f"gradient of {key}, rank {rank}", 10)
