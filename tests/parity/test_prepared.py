"""Prepared models against DGL and PyG on the whole graph, what is told of them, and what undoing leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sar
from tests.parity import cases_prepared as cases, described
from tests.support import same_text
from tests.support.graphs import close, make
from tests.support.sessions import Workers

MODELS = [("dgl", name) for name in cases.DGL] + [("pyg", name) for name in cases.PYG]


def whole(library: str, name: str, src: np.ndarray, dst: np.ndarray, x: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    """The model as it is, on one process."""
    model = cases.model_of(library, name, torch.from_numpy(x).dtype)
    ends = torch.from_numpy(src), torch.from_numpy(dst)
    if library == "pyg":
        return cases.run(model, library, torch.stack(ends), x, grad, True)
    import dgl

    return cases.run(model, library, dgl.graph(ends, num_nodes=len(x)), x, grad, True)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("library", "name"), MODELS, ids=lambda value: value)
def test_prepared_is_plain(few: Workers, library: str, name: str, dtype: str) -> None:
    pytest.importorskip("dgl" if library == "dgl" else "torch_geometric")
    kind = "empty_worker" if few.world == 4 else "random"
    graph, rng = make(kind, few.world, seed=91), np.random.default_rng(92)
    x = rng.standard_normal((graph.num_nodes, cases.IN)).astype(dtype)
    grad = rng.standard_normal((graph.num_nodes, cases.OUT)).astype(dtype)
    expected = whole(library, name, graph.src, graph.dst, x, grad)
    for rank, found in enumerate(few.run(cases.prepared, graph.shares(x=x, grad=grad), library=library, name=name)):
        for key, value in expected.items():
            own = value[graph.rows(rank)] if key in ("out", "x", "eval") else value
            close(found[key], own, f"{key} of rank {rank}", 20 if dtype == "float32" else 100)
        became = {one[0]: one[2] for one in found["choices"]}
        norms = [path for path in became if path.endswith(("norm", "norms.0.module"))]
        if name != "pooled":
            assert {became[path] for path in norms} == {"batch norm of all nodes"} and norms
        else:
            assert [became[path] for path in ("norm", "pool")] == ["over all nodes"] * 2
        assert found["shown"].splitlines()[0].split() == ["module", "class", "became", "why", "sends", "saves"]
        layers = [one for one in found["choices"] if one[1].endswith("Conv")]
        fused = name in ("sage", "gat", "gcn", "pooled")
        assert {one[2] for one in layers} == {"fused" if fused else "steps"}
        assert all(one[4] == 0 if few.world == 1 else one[4] >= 0 for one in layers)


def test_layers_of_sar(two: Workers) -> None:
    graph, rng = make("random", 2, seed=93), np.random.default_rng(94)
    x, grad = (rng.standard_normal((graph.num_nodes, width)) for width in (cases.IN, cases.OUT))
    for found in two.run(cases.prepared, graph.shares(x=x, grad=grad), library="sar", name=""):
        became = {one[0]: one[2] for one in found["choices"]}
        assert became == {"": "untouched", "first": "fused", "norm": "batch norm of all nodes", "second": "fused"} | {
            path: "untouched" for path in became if "." in path
        }


@pytest.mark.parametrize(("name", "fewer"), [("sage", 2), ("pooled", 3)])
def test_asked_once(two: Workers, name: str, fewer: int) -> None:
    """SAGEConv with a narrower result, and what reduces over nodes, ask all workers in each forward that is not
    prepared."""
    pytest.importorskip("torch_geometric")
    graph = make("random", 2, seed=95)
    x = np.random.default_rng(96).standard_normal((graph.num_nodes, cases.IN))
    for plain, prepared, restored in two.run(cases.operations, graph.shares(x=x), name=name):
        assert plain == restored and plain - prepared == fewer


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ("class", ["ScheduleError", "convs.1", "GCNConv", "SAGEConv", "Every worker prepares the same model"]),
        ("width", ["ScheduleError", "rank 1 has convs.0.", "[7, 9]", "[6, 9]"]),
        ("length", ["ScheduleError", "rank 1 has more", "rank 0 has no further module"]),
        ("replaced", ["ScheduleError", "norms.0.module is 'untouched' on rank 1 (its forward is replaced"]),
        ("graph", ["TypeError", "a Tensor that is split over workers is wanted"]),
        ("changed", ["ValueError", "convs.0 (SAGEConv) was prepared to run in one piece on all workers"]),
    ],
)
def test_errors(two: Workers, how: str, parts: list[str]) -> None:
    """On every rank, and they name the module."""
    pytest.importorskip("torch_geometric")
    graph = make("random", 2, seed=97)
    x = np.random.default_rng(98).standard_normal((graph.num_nodes, cases.IN))
    said = two.run(cases.disagreeing, graph.shares(x=x), how=how)
    for kind, text in said:
        assert all(part in f"{kind}: {text}" for part in parts), f"{kind}: {text}"


def test_what_all_can_run(two: Workers) -> None:
    """A hook on one rank: all take the steps, and say whose hook it is."""
    pytest.importorskip("torch_geometric")
    graph = make("random", 2, seed=97)
    given = [{"part": graph.part(r), "x": np.zeros(1)} for r in range(2)]
    for first, second in two.run(cases.disagreeing, given, how="hook"):
        assert first == ("convs.0", "SAGEConv", "steps", "rank 1: lin_l: it has hooks")
        assert second[2:] == ("fused", "the product first, which is narrower")


def test_page(two: Workers) -> None:
    """docs/prepared.md shows what sar.describe prints."""
    dgl, pyg = pytest.importorskip("dgl"), pytest.importorskip("torch_geometric")
    if dgl.__version__.startswith("1.1") and pyg.__version__.startswith("2.8"):
        same_text(*described.written(two), "python -m tests.parity.described")


def test_not_prepared() -> None:
    with pytest.raises(ValueError, match="not prepared: call sar.prepare"):
        sar.describe(torch.nn.Linear(2, 2))
