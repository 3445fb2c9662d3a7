"""Models under torch.compile give the numbers that they give as they are, also where one rank alone compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sar.autograd.fused import operation
from tests.parity import cases_compiled as cases
from tests.parity.cases_prepared import DGL, PYG
from tests.support.graphs import make
from tests.support.sessions import Workers

PLAIN = [(*pair, "eager") for pair in cases.MORE] + [("dgl", name, "eager") for name in ("gcn", "sage", "gat")]
PLAIN += [("sar", "layers", "eager"), ("pyg", "gcn", "eager"), ("pyg", "gat", "eager")]
PLAIN += [("pyg", name, "inductor") for name in ("gcn", "gat", "jumping", "edge_cnn")]
SHOWN = [("dgl", "sage", 2), ("dgl", "gat", 1), ("dgl", "own", 2), ("pyg", "gcn", 2), ("pyg", "edge_cnn", 1)]
"""A mean and attention in one piece, Python functions, a layer of PyG in one piece, functions of edges."""
BOTH = [("dgl", "gcn"), ("dgl", "gin"), ("pyg", "gat"), ("sar", "layers")]
"""Prepared models that both ranks compile."""
WHOLE = [("dgl", name) for name in DGL] + [("pyg", name) for name in PYG if name != "pooled"] + [("sar", "layers")]
ALONE = [("dgl", "gat"), ("pyg", "sage")]
"""Prepared models that one rank alone compiles."""


def cases_of() -> list[Any]:
    """Library, model, backend, how many ranks compile, whether the model is prepared."""
    found = [
        ((*model, ranks, False), model[2] == "eager" and (*model[:2], ranks) in SHOWN)
        for model in PLAIN
        for ranks in (1, 2)
    ]
    found += [
        ((*model, backend, ranks, True), backend == "aot_eager" and model in (ALONE if ranks == 1 else BOTH))
        for model in WHOLE
        for backend in ("aot_eager", "inductor")
        for ranks in (1, 2)
    ]
    return [pytest.param(*case, marks=() if shown else pytest.mark.full) for case, shown in found]


@pytest.mark.parametrize(("library", "name", "backend", "ranks", "prepares"), cases_of())
def test_compiled(two: Workers, library: str, name: str, backend: str, ranks: int, prepares: bool) -> None:
    """As they are, graphs break around exchanges; a prepared model is compiled in one piece."""
    pytest.importorskip("torch_geometric" if library == "pyg" else "dgl")
    if prepares and not operation.POSSIBLE:
        pytest.skip("this torch has a graph break at each layer")
    graph = make("random", 2, seed=96)
    x = np.random.default_rng(97).standard_normal((graph.num_nodes, cases.IN))
    given = [{"part": graph.part(r), "x": x[graph.rows(r)], "compiles": r < ranks} for r in range(2)]
    for apart in two.run(cases.compiled, given, library=library, name=name, backend=backend, prepares=prepares):
        assert len(apart) > 6 and max(apart) <= (1e-12 if prepares else 1e-10)


def test_what_is_not_compiled(two: Workers) -> None:
    pytest.importorskip("dgl")
    pytest.importorskip("torch_geometric")
    if not operation.POSSIBLE:
        pytest.skip("this torch has a graph break at each layer")
    graph = make("random", 2, seed=96)
    for twice, other, exported in two.run(cases.not_compiled, graph.shares()):
        assert "second time" in twice and other.startswith("Unsupported") and exported.startswith("WholeGraphError")
