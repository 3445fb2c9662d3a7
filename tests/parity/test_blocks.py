"""Blocks (message-flow graphs): what layers compute on them equals DGL on the whole graph at the seeds."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_blocks
from tests.parity.cases_blocks import Model
from tests.support.graphs import KINDS, Graph, close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sage": ("SAGEConv", {"aggregator_type": "mean"}),
    "conv": ("GraphConv", {"norm": "right", "allow_zero_in_degree": True}),
    "both": ("GraphConv", {"norm": "both", "allow_zero_in_degree": True}),
    "gat": ("GATConv", {"num_heads": 2, "allow_zero_in_degree": True}),
    "pool": ("SAGEConv", {"aggregator_type": "pool"}),
}


def in_edges_of(graph: Graph, seeds: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.isin(graph.dst, seeds))


def field(graph: Graph, seeds: np.ndarray, layers: int, keep: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per layer, from the first on: edges and destination nodes, worked out in numpy."""
    steps = []
    for _ in range(layers):
        edges = in_edges_of(graph, seeds)
        steps.append((edges, seeds))
        sources = np.unique(graph.src[edges])
        seeds = np.union1d(seeds, sources) if keep else sources
    return steps[::-1]


def compare(
    few: Workers,
    graph: Graph,
    layer: str,
    seeds: np.ndarray,
    keep: bool = True,
    n_layers: int = 3,
    weighted: bool = False,
    one_shot: bool = False,
) -> None:
    rng = np.random.default_rng(3)
    name, options = LAYERS[layer]
    sizes = [5, *[4] * (n_layers - 1), 3]
    pairs = list(zip(sizes[:-1], sizes[1:]))
    heads = () if name != "GATConv" else (options["num_heads"],)
    options = {k: v for k, v in options.items() if k != "num_heads"}
    layers = [(name, (*pair, *heads), options) for pair in pairs]
    torch.manual_seed(0)
    model = Model(layers).double()
    x, w = rng.standard_normal((graph.num_nodes, 5)), rng.random((len(graph.src), 1))
    steps = field(graph, seeds, n_layers, keep)
    oracle = graph.of_dgl()
    feature = torch.from_numpy(x).requires_grad_()
    if layer == "both":  # degrees are those within a block, as in DGL's own blocks
        graphs = [dgl.edge_subgraph(oracle, torch.from_numpy(edges), relabel_nodes=False) for edges, _ in steps]
        weights = [torch.from_numpy(w[edges]) for edges, _ in steps]
    else:
        graphs, weights = [oracle] * n_layers, [torch.from_numpy(w)] * n_layers
    expected = model(graphs, feature, weights if weighted else None)
    grad = np.zeros(expected.shape)
    grad[seeds] = rng.standard_normal((len(seeds), 3))
    expected.backward(torch.from_numpy(grad))
    assert feature.grad is not None
    state = {k: v.numpy() for k, v in model.state_dict().items()}
    arguments, mine = [], []
    for rank in range(graph.world):
        rows = graph.rows(rank)
        own = np.sort(seeds[(seeds >= rows.start) & (seeds < rows.stop)])
        mine.append(own)
        arguments.append(
            {
                "part": graph.part(rank),
                "seeds": rng.permutation(own),
                "x": x[rows],
                "grad": grad[own],
                "w": w[graph.edges(rank)] if weighted else None,
            }
        )
    results = few.run(cases_blocks.mfgs, arguments, layers=layers, state=state, keep=keep, one_shot=one_shot)
    out, gradient = expected.detach().numpy(), feature.grad.numpy()
    for rank, result in enumerate(results):
        rows = graph.rows(rank)
        close(result["out"], out[mine[rank]], f"output of rank {rank}")
        close(result["x"], gradient[rows], f"gradient of features, rank {rank}")
        for key, parameter in model.named_parameters():
            wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            found = result["parameters"][key]
            close(np.zeros_like(wanted) if found is None else found, wanted.numpy(), key)
        for n, (edges, _) in enumerate(steps):
            held = edges[(graph.dst[edges] >= rows.start) & (graph.dst[edges] < rows.stop)]
            assert result["edges"][n] == len(held)
            lower = steps[n - 1][1] if n > 0 else None
            if lower is not None:
                wanted_rows = lower[(lower >= rows.start) & (lower < rows.stop)] - rows.start
                assert np.array_equal(np.sort(result["sources"][n]), wanted_rows)
            assert result["degrees"][n][0].sum() == len(held)
    for n, (edges, _) in enumerate(steps):
        assert sum(r["degrees"][n][1].sum() for r in results) == len(edges)


def some_nodes(graph: Graph, share: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.flatnonzero(rng.random(graph.num_nodes) < share)


@pytest.mark.parametrize("layer", list(LAYERS))
@pytest.mark.parametrize("kind", KINDS)
def test_three_layers(few: Workers, kind: str, layer: str) -> None:
    if layer == "pool" and kind == "no_edges":
        pytest.skip("DGL gives node 0 the gradients of all nodes where a graph has no edge")
    graph = make(kind, few.world)
    compare(few, graph, layer, some_nodes(graph, 0.15))


@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_without_keeping_seeds(few: Workers, kind: str) -> None:
    graph = make(kind, few.world, seed=2)
    compare(few, graph, "conv", some_nodes(graph, 0.2), keep=False)


def test_edge_weights(few: Workers) -> None:
    graph = make("random", few.world, seed=4)
    compare(few, graph, "conv", some_nodes(graph, 0.2), weighted=True)
    compare(few, graph, "sage", some_nodes(graph, 0.1), weighted=True, n_layers=2)


def test_seeds_on_one_worker_alone(few: Workers) -> None:
    graph = make("random", few.world, seed=5)
    compare(few, graph, "sage", np.arange(graph.rows(few.world - 1).start, graph.num_nodes)[:3])


@pytest.mark.parametrize("seeds", ["none", "all", "one"])
def test_how_many_seeds(few: Workers, seeds: str) -> None:
    graph = make("random", few.world, seed=6)
    everything = np.arange(graph.num_nodes)
    compare(few, graph, "sage", {"none": everything[:0], "all": everything, "one": everything[17:18]}[seeds])


def test_one_layer(few: Workers) -> None:
    graph = make("hub", few.world, seed=7)
    compare(few, graph, "conv", some_nodes(graph, 0.3), n_layers=1)


def test_eight_workers(pool: Pool) -> None:
    graph = make("random", 8, seed=8)
    compare(Workers(pool, 8, "shm"), graph, "sage", some_nodes(graph, 0.2))


# ---- one-shot aggregation ------------------------------------------------------


@pytest.mark.parametrize("layer", ["sage", "conv", "both", "gat"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_shot(few: Workers, kind: str, layer: str) -> None:
    graph = make(kind, few.world, seed=9)
    compare(few, graph, layer, some_nodes(graph, 0.2), n_layers=2, one_shot=True)
