"""Messages that write: batch norm over edges, counters and sums. Values, gradients and buffers after many steps,
against PyG on the whole graph. A message runs once a forward, on the user's data. One that looks at several edges sees
those of its worker: it says so, and which function does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_edge_norm as cases
from tests.support.graphs import make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")


def near(value: Any, truth: Any, what: str) -> None:
    error = np.abs(np.asarray(value) - truth).max(initial=0)
    assert error <= 1e-8 * max(1.0, np.abs(truth).max(initial=0)), f"{what}: off by {error:.1e}"


@pytest.mark.parametrize("name", cases.MODELS)
def test_trained(few: Workers, name: str) -> None:
    """30 steps and then eval(); batch norm as the user made it where there is one worker, converted otherwise."""
    graph = make("empty_worker" if few.world == 4 else "random", few.world, seed=54)
    x = np.random.default_rng(55).standard_normal((graph.num_nodes, 6))
    whole = torch.from_numpy(np.stack([graph.src, graph.dst]))
    steps = 2 if name == "wide" else 30
    for seed in range(5 if name == "wide" else 1):
        truth = cases.trained(name, whole, x, len(x), seed, steps, True, False)
        common = {"name": name, "seed": seed, "nodes": len(x), "steps": steps, "convert": few.world > 1}
        found = few.run(cases.trained_on_worker, graph.shares(x=x), **common)
        for rank, one in enumerate(found):
            for what in ("out", "after", "x"):
                near(one[what], truth[what][graph.rows(rank)], f"{what} of rank {rank}")
            assert one["calls"] == truth["calls"]
            for key, value in truth["grads"].items():
                near(one["grads"][key], value, f"gradient of {key}")
            for key, value in truth["buffers"].items():
                added = "sum_of" in key
                near(sum(each["buffers"][key] for each in found) if added else one["buffers"][key], value, key)


def test_warned(few: Workers) -> None:
    """One worker's number of edges, values stored elsewhere, and functions that the table does not have are named, with
    the line of the script."""
    graph = make("random", few.world, seed=56)
    says = {"divided": "div", "shape": "rtruediv", "len": "len()", "writes": "sar.comm.all_reduce"}
    says.update({"copies": "copy_ writes", "unknown": "sar.rowwise"})
    for found in few.run(cases.warned_of, graph.shares()):
        assert not found["plain"]
        for kind, text in says.items() if few.world > 1 else ():
            here = [said for said in found[kind] if said.startswith("cases_pyg_edge_norm.py")]
            assert any(text in said for said in here), (kind, found)
        assert few.world > 1 or not any(found.values())


def test_declared_that_writes(two: Workers) -> None:
    graph = make("random", 2, seed=57)
    for said in two.run(cases.refused, graph.shares()):
        assert "Sequential wrote its buffer '1.running_mean'" in said
    two.pool.leave()  # blocks of edges that fail end the session


def test_warned_of_mixing(few: Workers) -> None:
    graph = make("random", few.world, seed=95)
    for found in few.run(cases.warned_of_mixing, graph.shares()):
        for name, said in found.items():
            if name in cases.MIXED and few.world > 1:
                assert any(text.startswith(f"{name} over a tensor of edges sees") for text in said), (name, said)
            else:
                assert not said, f"{name}: {said}"
        if few.world > 1:
            assert "sar.convert_batchnorm(model)" in found["batch_norm"][0]
            assert "scatter with index" in found["mean"][0]
