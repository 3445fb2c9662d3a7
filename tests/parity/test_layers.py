"""Every layer of ``dgl.nn`` that works on a graph of one relation, not touched, against DGL on the whole graph; a few
on every kind of graph and number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import cases_layers
from tests.parity.cases_layers import FEW, IN, REFUSED, SPECS, draw
from tests.parity.layer_oracle import compare, oracle, side, spread
from tests.support.graphs import Graph, make
from tests.support.sessions import Workers, half


def looped(kind: str, world: int, seed: int, loops: bool = True) -> Graph:
    """A graph whose nodes all have an in-edge, as many layers ask for."""
    graph = make(kind, world, seed)
    nodes = np.arange(graph.num_nodes)
    if not loops:
        other = graph.src != graph.dst
        return graph._replace(
            src=np.concatenate([graph.src[other], nodes]), dst=np.concatenate([graph.dst[other], np.roll(nodes, 1)])
        )
    order = np.random.default_rng(seed).permutation(len(graph.src) + len(nodes))
    src, dst = (np.concatenate([ends, nodes])[order] for ends in (graph.src, graph.dst))
    return graph._replace(src=src, dst=dst)


@pytest.mark.parametrize("name", SPECS)
def test_layer(few: Workers, name: str) -> None:
    """In double precision; of 4 workers one owns no node."""
    kind = "empty_worker" if few.world == 4 else "random"
    graph = looped(kind, few.world, 30, SPECS[name].loops)
    compare(few, graph, name, "float64")


def test_largest_of_special_numbers(few: Workers) -> None:
    """NaN is never the largest number of a graph, and what is infinite gives 0, as in DGL."""
    graph = make("random", few.world, 36)
    x = np.random.default_rng(37).standard_normal((graph.num_nodes, IN))
    x[::7, 0], x[:, 1], x[::5, 2], x[:, 3] = np.nan, np.nan, np.inf, -np.inf
    expected = oracle(graph, "max_pooling", [x], "float64")
    for rank, result in enumerate(spread(few, graph, "max_pooling", "float64", [x], expected)):
        np.testing.assert_array_equal(result["out"][0], expected["out"][0])
        np.testing.assert_array_equal(result["inputs"][0], expected["inputs"][0][graph.rows(rank)])


def error(value: np.ndarray, truth: np.ndarray) -> float:
    """The largest deviation, relative to the largest entry or 1."""
    return float(np.abs(value - truth).max() / max(np.abs(truth).max(), 1.0)) if truth.size else 0.0


@pytest.mark.parametrize("name", half(SPECS))
def test_single_precision(two: Workers, name: str) -> None:
    """Single precision is within 1e-5 of DGL in double precision, relative to the largest entry or 1."""
    graph = looped("random", 2, 32, SPECS[name].loops)
    inputs = draw(graph, name, "float32")
    single = oracle(graph, name, inputs, "float32")
    double = oracle(graph, name, inputs, "float64", like=single)
    results = spread(two, graph, name, "float32", inputs, single)
    ranks = range(graph.world)
    where = {"n": [graph.rows(r) for r in ranks], "e": [graph.edges(r) for r in ranks]}

    def whole(parts: list[np.ndarray], of: str) -> np.ndarray:
        if of == "g":
            return parts[-1]
        made = np.zeros((graph.num_nodes if of == "n" else len(graph.src), *parts[0].shape[1:]))
        for rows, part in zip(where[of], parts):
            made[rows] = part
        return made

    found = {}
    for i, of in enumerate(SPECS[name].outputs):
        found[f"output {i}"] = whole([r["out"][i] for r in results], of), single["out"][i], double["out"][i]
    for i, value in enumerate(single["inputs"]):
        if value is not None:
            parts = [r["inputs"][i] for r in results]
            found[f"gradient of input {i}"] = whole(parts, side(name, i)), value, double["inputs"][i]
    for key, value in single["parameters"].items():
        if value is not None:
            found[f"gradient of {key}"] = results[0]["parameters"][key], value, double["parameters"][key]
    for what, (ours, dgls, truth) in found.items():
        assert error(ours, truth) <= 1e-5, f"{what}: {error(ours, truth):.1e}; DGL in single {error(dgls, truth):.1e}"


@pytest.mark.parametrize("name", REFUSED)
def test_refused(few: Workers, name: str) -> None:
    """Layers that are not run say so on every rank, and what to do."""
    graph = looped("random", few.world, 33)
    x = np.random.default_rng(34).standard_normal((graph.num_nodes, IN)).astype("float32")
    said = few.run(cases_layers.refused, graph.shares(x=x), name=name)
    assert len(set(said)) == 1 and "on one worker" in said[0]


LAYERS = [*(name for name in FEW if not name.startswith(("gat", "rel_graph"))), "sage_mean", "appnp", "tag"]
"""Attention and types of edges have tests of their own."""
LOOSE = {"float32": 1.0, "float64": 10.0}
"""Single precision holds what a single sum does; in double precision the workers' partial sums may show."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_on_every_session(workers: Workers, kind: str, layer: str, dtype: str) -> None:
    compare(workers, make(kind, workers.world, seed=30), layer, dtype, loose=LOOSE[dtype])


@pytest.mark.parametrize("kind", ["one_node", "no_edges", "hub", "no_edges_between"])
def test_odd_graphs(workers: Workers, kind: str) -> None:
    """One node, no edges at all (which SAGEConv asks about), a hub, and workers that share no edge."""
    for layer in ("sage_mean", "graph_both"):
        compare(workers, make(kind, workers.world, seed=32), layer, "float64")
