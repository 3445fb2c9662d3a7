"""Normalizations and pools of torch_geometric, whose statistics are those of the nodes of all workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity import cases_pyg_over_nodes as cases
from tests.parity.test_pyg_layers import UNIT, near
from tests.support.graphs import Graph, make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")

CALLS = [(name, batch) for name in cases.MODELS for batch in (False, True) if name not in cases.BARE or not batch]
IDS = [f"{name}-{'graphs' if batch else 'graph'}" for name, batch in CALLS]


def check(workers: Workers, graph: Graph, name: str, batched: bool, dtype: str) -> None:
    rng = np.random.default_rng(81)
    n = graph.num_nodes
    x = rng.standard_normal((n, cases.IN)).round(1).astype(dtype)  # some entries are equal
    batch = rng.choice([0, 1, 2, 4], n) if batched else None  # one graph has no nodes
    truth = cases.step(name, x.astype("float64"), batch, None, 1.0, False)
    pooled = name in cases.POOLS
    shares = rng.dirichlet(np.ones(graph.world)) if pooled else np.ones(graph.world)
    given = []
    for rank in range(graph.world):
        rows = graph.rows(rank)
        own: dict[str, Any] = {"part": graph.part(rank), "x": x[rows], "share": float(shares[rank])}
        own["batch"] = None if batch is None else batch[rows]
        own["grad"] = truth["grad"].astype(dtype) if pooled else truth["grad"][rows].astype(dtype)
        given.append(own)
    found = workers.run(cases.layer, given, name=name)
    unit = UNIT[dtype]
    for rank, one in enumerate(found):
        rows = graph.rows(rank)
        for key in ("out", "eval"):
            near(one[key], truth[key] if pooled else truth[key][rows], unit, f"{key} of rank {rank}")
        near(one["x"], truth["x"][rows], unit, f"gradient of x, rank {rank}")
        for key, value in truth["buffers"].items():
            near(one["buffers"][key], value, unit, f"{key} of rank {rank}")
    for key, value in truth["parameters"].items():
        near(sum(one["parameters"][key] for one in found), value, unit, f"gradient of {key}")


@pytest.mark.parametrize(("name", "batched"), CALLS, ids=IDS)
def test_of_all_nodes(few: Workers, name: str, batched: bool) -> None:
    """Results, gradients and running statistics in double precision; of 4 workers one owns no node."""
    check(few, make("empty_worker" if few.world == 4 else "random", few.world, seed=80), name, batched, "float64")


@pytest.mark.parametrize(("name", "batched"), CALLS, ids=IDS)
def test_single_precision(two: Workers, name: str, batched: bool) -> None:
    check(two, make("random", 2, seed=82), name, batched, "float32")


def test_refused_on_every_worker(few: Workers) -> None:
    """Whatever is wrong on one worker is raised on all, and the next call finds them together."""
    if few.world == 1:
        pytest.skip("one worker has all nodes")
    graph = make("random", few.world, seed=83)
    texts = {
        **dict.fromkeys(cases.ORDERED, "needs all nodes of a graph on one worker"),
        **dict.fromkeys(cases.NEIGHBOURS, "would find neighbours among the points of each worker"),
        "ptr": "give index, the graph of each own node",
        "batch norm inside": "sar.convert_batchnorm(model)",
        "rows of one worker alone": "Give a row for each own node",
        "rows of no worker": "Give a row for each own node",
        "batch of one worker too short": "batch has to give the graph of each own node",
        "too few graphs": "a batch vector names graph 2",
        "afterwards": f"{graph.num_nodes}.0",
    }
    for said in few.run(cases.said, graph.shares()):
        assert said.keys() == texts.keys()
        for name, text in said.items():
            assert texts[name] in text, f"{name}: {text}"


def test_left_alone(two: Workers) -> None:
    """Tensors that every worker has all of are no tensors of nodes, and layers on other graphs tell nobody."""
    graph = make("random", 2, seed=84)
    for found in two.run(cases.left_alone, graph.shares()):
        assert max(found[:-1]) < 1e-5
        assert found[-1] == graph.num_nodes
