"""What prepared layers keep of rows that they are given in every step, against DGL and PyG on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sar.autograd.fused.constant import Constant
from sar.autograd.fused.deferred import DeferredTensor
from tests.support.graphs import KINDS, Graph, close, make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")

from tests.parity import cases_constant
from tests.parity.cases_constant import CHANGED, LAYERS, STEPS


def check(
    workers: Workers, kind: str, name: str, bag: bool, how: str = "", by: str = "nobody", misses: int = -1
) -> Any:
    """Runs a layer on the workers and alone; returns what the workers gave, and whether rows changed anywhere."""
    graph: Graph = make(kind, workers.world, seed=92)
    x = cases_constant.rows(graph.num_nodes, bag)
    ranks = range(graph.world)
    changes = [by == "everybody" or (by == "the last rank" and r == graph.world - 1) for r in ranks]
    ranked = {"changes": changes, "misses": [r == misses for r in ranks]}
    found = workers.run(cases_constant.trained, graph.shares(x=x, ranks=ranked), name=name, how=how)
    after = x.copy()
    for r in ranks:
        after[graph.rows(r)] *= 2 if changes[r] and how != "new" else 1
    whole = torch.from_numpy(np.stack([graph.src, graph.dst])) if name.startswith("pyg") else graph.of_dgl()
    truth = cases_constant.alone(whole, x, after, name)
    for rank, one in enumerate(found):
        for number, (out, wanted) in enumerate(zip(one["outputs"], truth["outputs"], strict=True)):
            close(out, wanted[graph.rows(rank)], f"result of step {number}")
        for number, (grads, wanted) in enumerate(zip(one["grads"], truth["grads"], strict=True)):
            for grad, true in zip(grads, wanted, strict=True):
                close(grad, true, f"gradient of training step {number}")
    return found, any(c and graph.rows(r).start < graph.rows(r).stop for r, c in enumerate(changes))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_stay(workers: Workers, kind: str, name: str) -> None:
    """The first layer's sums travel in the first two calls alone."""
    found, _ = check(workers, kind, name, bag=False)
    keeps = "gat" not in name
    assert all(one["kept"] == [False] + [keeps] * (STEPS - 1) for one in found)
    assert not keeps or not any(any(one["sent"][2:]) for one in found)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_rows_of_few_numbers(workers: Workers, kind: str, name: str) -> None:
    found, _ = check(workers, kind, name, bag=True)
    some = [one for one in found if len(one["outputs"][0])]
    assert all(one["few"] == [False] + [True] * (STEPS - 1) for one in some)


@pytest.mark.parametrize("how", ["counted", "uncounted", "new"])
@pytest.mark.parametrize("by", ["everybody", "the last rank"])
@pytest.mark.parametrize(("name", "bag"), [("sage", False), ("sage", True), ("pyg_gcn", False), ("pyg_gat", True)])
def test_rows_that_change(workers: Workers, name: str, bag: bool, by: str, how: str) -> None:
    """What any worker changes, in whatever way, no worker uses any longer."""
    found, changed = check(workers, "random", name, bag, how, by)
    sent = np.array([one["sent"] for one in found]).sum(0)
    if name != "pyg_gat" and not bag:
        stays = 1 if how == "new" and changed else CHANGED if changed else STEPS
        assert all(one["kept"] == [0 < number < stays for number in range(STEPS)] for one in found)
        assert workers.world == 1 or not changed or sent[-1] > 0


@pytest.mark.parametrize("name", ["sage", "pyg_sage", "pyg_gcn"])
def test_a_worker_that_runs_steps(workers: Workers, name: str) -> None:
    """All workers go back to sums in every step, and none waits."""
    found, _ = check(workers, "random", name, bag=False, misses=workers.world - 1)
    assert not any(any(one["kept"]) for one in found)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("bag", [False, True])
def test_layers_that_are_computed_again(workers: Workers, name: str, bag: bool) -> None:
    """In backward of the first step as well, when nothing was kept in forward."""
    check(workers, "random", name, bag, how="again")


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("bag", [False, True])
def test_bfloat16(workers: Workers, name: str, bag: bool) -> None:
    """Under autocast: within what bfloat16 rounds, of a first step in which nothing is kept."""
    graph = make("random", workers.world, seed=93)
    x = cases_constant.rows(graph.num_nodes, bag)
    for first, *others in workers.run(cases_constant.under_autocast, graph.shares(x=x), name=name):
        for found in others:
            for value, true in zip(found, first, strict=True):
                assert value.shape == true.shape and value.dtype == true.dtype
                assert not true.size or np.abs(value - true).max() <= 2**-7 * np.abs(true).max()


class _Doubled:
    def apply(self, source: torch.Tensor) -> torch.Tensor:
        return 2 * source


def test_deferred_rows_are_not_read() -> None:
    """They are computed some at a time, and never exist as a whole, unless something looks at them."""
    rows = DeferredTensor(torch.ones(4, 3), _Doubled())
    constant = Constant()
    for _ in range(3):
        assert constant.sparse(rows) is None
    assert rows._state._values is None
