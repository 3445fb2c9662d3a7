"""A message that looks at several edges sees those of its worker: it says so, and which function does."""

from __future__ import annotations

import pytest

from tests.parity import cases_pyg_own_edges as cases
from tests.support.graphs import make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")


def test_warned(few: Workers) -> None:
    graph = make("random", few.world, seed=95)
    for found in few.run(cases.warned, graph.shares()):
        for name, said in found.items():
            if name in cases.MIXED and few.world > 1:
                assert any(text.startswith(f"{name} over a tensor of edges sees") for text in said), (name, said)
            else:
                assert not said, f"{name}: {said}"
        if few.world > 1:
            assert "sar.convert_batchnorm(model)" in found["batch_norm"][0]
            assert "scatter with index" in found["mean"][0]
