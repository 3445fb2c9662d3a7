"""Degrees are DGL's numbers in plain tensors; what follows from a degree of 0 is the same on all workers."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_degrees as cases
from tests.support.graphs import Graph, close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers


def parts(graph: Graph, x: np.ndarray | None = None) -> list[dict[str, Any]]:
    rows = [{} if x is None else {"x": x[graph.rows(r)]} for r in range(graph.world)]
    return [{"part": graph.part(r), **rows[r]} for r in range(graph.world)]


def with_one_lonely(world: int, loop: bool = False) -> Graph:
    """Each node has an in-edge from the next one, but for the last; with ``loop`` that has one from itself."""
    n = 4 * world
    src, dst = np.arange(1, n), np.arange(n - 1)
    if loop:
        src, dst = np.append(src, n - 1), np.append(dst, n - 1)
    return Graph(n, src, dst, 4 * np.arange(world + 1))


@pytest.mark.parametrize("kind", ["random", "no_edges"])
def test_expressions(few: Workers, kind: str) -> None:
    """What scripts compute from degrees is what they would compute from DGL's."""
    graph = make(kind, few.world, seed=80)
    into, out = (np.bincount(ends, minlength=graph.num_nodes) for ends in (graph.dst, graph.src))
    for rank, found in enumerate(few.run(cases.expressions, parts(graph))):
        for degrees, values in zip((into, out, into), found):
            own = torch.from_numpy(degrees[graph.rows(rank)])
            for name, function in cases.EXPRESSIONS.items():
                np.testing.assert_array_equal(values[name], function(own).numpy(), name)


def test_every_refusing_layer_is_tried() -> None:
    dgl = pytest.importorskip("dgl")
    layers = {name: kind for name, kind in vars(dgl.nn.pytorch).items() if hasattr(kind, "forward")}
    found = {name for name, kind in layers.items() if "in_degrees() == 0" in inspect.getsource(kind.forward)}
    assert found == set(cases.REFUSING)


def test_layers_that_refuse(few: Workers) -> None:
    """They run, and give what DGL gives when told to allow such nodes; they stay as they were, and hooks and scripts
    see the true degrees."""
    dgl = pytest.importorskip("dgl")
    graph = with_one_lonely(few.world)
    x = np.random.default_rng(81).standard_normal((graph.num_nodes, cases.WIDTH)).astype("float32")
    results = few.run(cases.refusing_layers, parts(graph, x))
    whole = graph.of_dgl()
    for name, options in cases.REFUSING.items():
        layer = getattr(dgl.nn, name)(**options).eval()
        layer.load_state_dict({k: torch.from_numpy(v) for k, v in results[0][name]["state"].items()})
        with pytest.raises(dgl.DGLError, match="0-in-degree"):
            cases.call(layer, whole, torch.from_numpy(x))
        layer._allow_zero_in_degree = True
        with pytest.MonkeyPatch.context() as patch:
            if name == "EGATConv":  # which cannot be told
                patch.setattr(whole, "in_degrees", lambda: torch.ones(1))
            out = cases.call(layer, whole, torch.from_numpy(x)).detach().numpy()
        for rank, found in enumerate(results):
            close(found[name]["out"], out[graph.rows(rank)], f"{name} on rank {rank}", 10)
    for rank, found in enumerate(results):
        for name, result in found.items():
            assert result["asked"] == [rank == few.world - 1] * 2, f"{name} on rank {rank}"
            assert result["allows"] in (False, None) and np.isfinite(result["out"]).all()


def test_a_layer_with_its_own_check(two: Workers) -> None:
    """It sees the true degrees, so only the worker that owns the node finds it."""
    pytest.importorskip("dgl")
    graph = with_one_lonely(2)
    given = parts(graph, np.ones((graph.num_nodes, cases.WIDTH), "float32"))
    assert two.run(cases.own_check, given) == ["nothing", "ValueError: my own check"]


@pytest.mark.parametrize("loop", [False, True], ids=["lonely", "loop"])
def test_zero_degrees_are_agreed(few: Workers, loop: bool) -> None:
    """One worker alone owns the node; all know of it, and all refuse it."""
    graph = with_one_lonely(few.world, loop)
    x = np.ones((graph.num_nodes, cases.WIDTH), "float32")
    names = ["GraphConv", "GATConv", "GATv2Conv"]
    for rank, found in enumerate(few.run(cases.agreed, parts(graph, x), last=graph.num_nodes - 1)):
        owner = rank == few.world - 1
        for kind in ("full", "slice", "clone", "block"):
            assert found[kind] == ([False, False] + ["runs"] * 3 if loop else [owner, True, *names]), f"{kind}, {rank}"
        assert found["loops"] == [False, False] + ["runs"] * 3, f"rank {rank}"
        for kind in ("no_loops", "cut"):
            assert found[kind] == [owner, True, *names], f"{kind}, rank {rank}"


@pytest.mark.parametrize("world", [1, 2, 3])
def test_monet(pool: Pool, world: int) -> None:
    """Degrees of both ends of each edge, as DGL's MoNet reads them, on any number of workers."""
    pytest.importorskip("dgl")
    graph = make("random", world, seed=82)
    x = np.random.default_rng(83).standard_normal((graph.num_nodes, cases.WIDTH))
    whole = cases.monet(x, graph.num_nodes, whole=(torch.from_numpy(graph.src), torch.from_numpy(graph.dst)))
    found = Workers(pool, world, "shm").run(cases.monet, parts(graph, x), nodes=graph.num_nodes)
    close(sum(one["losses"] for one in found), whole["losses"], "losses", 100)
    for rank, one in enumerate(found):
        close(one["out"], whole["out"][graph.rows(rank)], "results", 100)
        close(one["x"], whole["x"][graph.rows(rank)], "gradients of features", 100)
        close(one["parameters"], whole["parameters"], "gradients", 100)
    assert sorted(np.concatenate([one["out_degrees"] for one in found])) == sorted(whole["out_degrees"])


def test_rows_that_are_not_there(two: Workers) -> None:
    """Worker 0 has a halo row, and worker 1 none, so it reads nothing that is not there."""
    first, second = two.run(cases.halo_rows, parts(with_one_lonely(2)))
    assert all("halo rows" in said for said in first) and len(first) == 6, first
    assert second[:5] == ["nothing"] * 5 and "halo rows" in second[5]
