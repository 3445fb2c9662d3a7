"""Transforms of PyG and graph functions of DGL, every one of them: right over all workers, or refused by name."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_transforms as cases, cases_transforms, transforms_table as table
from tests.support import same_text
from tests.support.graphs import make
from tests.support.sessions import Workers


def near(actual: Any, expected: Any, what: str) -> None:
    unit = 2e-6 if np.asarray(expected).dtype == np.float32 else 1e-10
    np.testing.assert_allclose(actual, expected, rtol=unit, atol=unit, err_msg=what)


def test_transforms_of_pyg(few: Workers) -> None:
    transforms = pytest.importorskip("torch_geometric.transforms")
    graph = make("random", few.world, seed=76)
    given = cases.columns(graph.num_nodes, len(graph.src))
    index = torch.from_numpy(np.stack([graph.src, graph.dst]))
    own = [
        {key: value[graph.edges(rank) if key == "edge_attr" else graph.rows(rank)] for key, value in given.items()}
        for rank in range(few.world)
    ]
    found = few.run(cases.worker, graph.shares(ranks={"given": own}))
    for name, made in cases.TRIED.items():
        whole = cases.transformed(made(transforms), name, given, index)
        assert sum(one[name]["num_edges"] for one in found) == whole["num_edges"], name
        for rank, one in enumerate(found):
            assert set(one[name]) == set(whole), name
            for key in set(whole) & {*cases.NODES, *cases.EDGES}:
                rows = graph.rows(rank) if key in cases.NODES else graph.edges(rank)
                near(one[name][key], whole[key][rows], f"{name}: {key} of rank {rank}")
    for name in cases.DRAWN:
        after = np.concatenate([one[name]["pos"] for one in found])
        drawn, _, rank, _ = np.linalg.lstsq(given["pos"], after, rcond=None)
        assert rank == 3
        near(given["pos"] @ drawn, after, f"{name}: one linear map for all nodes")
    for rank, one in enumerate(found):
        near(one["own"]["x"], given["x"][graph.rows(rank)] + 1, "a transform of one's own")
        assert np.abs(one["RandomJitter"]["pos"] - given["pos"][graph.rows(rank)]).max(initial=0) <= 0.1


def test_transforms_of_pyg_that_are_refused(two: Workers) -> None:
    pytest.importorskip("torch_geometric")
    graph = make("random", 2, seed=76)
    names = list(table.pyg_refused())
    for said in two.run(cases.refused, graph.shares(), names=names):
        for name in names:
            assert said[name].startswith(f"WholeGraphError: torch_geometric.transforms.{name} "), said[name]
            assert "before the graph is partitioned" in said[name]


def test_every_transform_of_pyg_is_in_the_table() -> None:
    transforms = pytest.importorskip("torch_geometric.transforms")
    refused, run = set(table.pyg_refused()), set(table.PYG_RUN)
    assert not refused & run and refused | run == set(transforms.__all__) - {"BaseTransform"}
    from sar.integrations.pyg.transforms import OWN_ROWS, SPECIAL

    assert run == OWN_ROWS | set(SPECIAL) and not OWN_ROWS & set(SPECIAL)
    of_undirected = {"AddRandomWalkPE", "AddLaplacianEigenvectorPE", "LaplacianLambdaMax"}  # in tests/transforms
    assert run == {*cases.TRIED, *cases.DRAWN, *of_undirected, "ComposeFilters", "RandomJitter"}


def test_every_function_of_dgl_is_in_the_table() -> None:
    dgl = pytest.importorskip("dgl")
    functions = {
        name
        for name, value in vars(dgl).items()
        if inspect.isfunction(value) and value.__module__.startswith("dgl") and not name.startswith("_")
    }
    functions |= {n for n in dgl.transforms.functional.__all__ if callable(getattr(dgl.transforms.functional, n, None))}
    groups = [set(table.DGL_RUN), set(table.dgl_refused()), set(table.DGL_NO_GRAPH), set(table.DGL_OPERATORS)]
    assert sum(map(len, groups)) == len(set.union(*groups)), "a function is in two groups"
    assert functions <= set.union(*groups), functions - set.union(*groups)
    classes = set(dgl.transforms.module.__all__) - {"BaseTransform"}
    refused = set(table.dgl_refused_transforms())
    assert not refused & set(table.DGL_TRANSFORMS_RUN) and classes == refused | set(table.DGL_TRANSFORMS_RUN)


def test_functions_of_dgl_that_are_refused(two: Workers) -> None:
    dgl = pytest.importorskip("dgl")
    graph = make("random", 2, seed=76)
    names = [name for name in table.dgl_refused() if hasattr(dgl, name) or hasattr(dgl.transforms, name)]
    kinds = list(table.dgl_refused_transforms())
    for said in two.run(cases_transforms.refused_by_name, graph.shares(), names=names, kinds=kinds):
        for name in (*names, *kinds):
            called, found, _ = said[name].partition(" is not supported on a graph split over workers: ")
            assert found and re.search(rf"\b{name}( \(graph\.\w+\))?$", called), said[name]


def test_functions_of_dgl_that_run(few: Workers) -> None:
    pytest.importorskip("dgl")
    graph = make("random", few.world, seed=76)
    rng = np.random.default_rng(77)
    x, w = rng.random((graph.num_nodes, 3)) + 0.1, rng.random((len(graph.src), 1)) + 0.1
    whole = graph.of_dgl()
    expected = cases_transforms.functions_that_run(x, w, whole)
    for rank, found in enumerate(few.run(cases_transforms.functions_that_run, graph.shares(x=x, edges={"w": w}))):
        assert set(found) == set(expected)
        for name, value in expected.items():
            kind, _, rows = name.rpartition(" of ")
            chosen: Any = {"nodes": graph.rows(rank), "edges": graph.edges(rank)}.get(rows, slice(None))
            near(found[name], value[chosen], f"{kind}, rank {rank}")


def test_the_page_is_what_the_tables_say() -> None:
    pytest.importorskip("torch_geometric")
    pytest.importorskip("dgl")
    same_text(table.PAGE.read_text(), table.page(), "make docs-layers")
