"""Aggregates of constant features that are computed once, against the layer on the whole graph by DGL."""

from __future__ import annotations

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_memo
from tests.support.graphs import KINDS, close, make
from tests.support.sessions import Workers


@pytest.mark.parametrize("layer", ["sage", "gin"])
@pytest.mark.parametrize(
    ("kind", "changed_by"), [*((kind, "nobody") for kind in KINDS), ("random", "everybody"), ("random", "rank 0")]
)
def test_steps(workers: Workers, kind: str, layer: str, changed_by: str) -> None:
    graph = make(kind, workers.world, seed=81)
    x = np.random.default_rng(82).standard_normal((graph.num_nodes, 3)).astype("float64")
    changes = [changed_by == "everybody" or (changed_by == "rank 0" and r == 0) for r in range(graph.world)]
    found = workers.run(cases_memo.steps, graph.shares(x=x, ranks={"changes": changes}), layer=layer)
    whole = graph.of_dgl()
    torch.manual_seed(3)
    made = dgl.nn.SAGEConv(3, 7, "mean") if layer == "sage" else dgl.nn.GINConv(torch.nn.Linear(3, 7), "sum")
    made = made.double()
    after = x.copy()
    for r, change in enumerate(changes):
        after[graph.rows(r)] *= 2 if change else 1
    for step in range(5):
        made.zero_grad()
        out = made(whole, torch.from_numpy(x if step < 3 else after))
        out.square().sum().backward()
        for rank, one in enumerate(found):
            close(one["outputs"][step], out.detach().numpy()[graph.rows(rank)], f"output of step {step}")
            if step != 2:
                for grad, p in zip(one["grads"][step], made.parameters()):
                    close(grad, p.grad.numpy(), f"gradient of step {step}")
    sent = np.array([one["sent"] for one in found]).sum(0)
    changed = any(c and len(x[graph.rows(r)]) for r, c in enumerate(changes))
    assert not sent[1:3].any()
    assert (sent[3:] == (sent[0] if changed else 0)).all()


@pytest.mark.parametrize("changed_by", ["everybody", "rank 0", "nobody"])
def test_given_again_after_a_change(workers: Workers, changed_by: str) -> None:
    """What was kept before the change is not what the tensor's mean is now."""
    graph = make("random", workers.world, seed=83)
    x = np.random.default_rng(84).standard_normal((graph.num_nodes, 3))
    changes = [changed_by == "everybody" or (changed_by == "rank 0" and r == 0) for r in range(graph.world)]
    found = workers.run(cases_memo.given_again, graph.shares(x=x, ranks={"changes": changes}))
    whole = graph.of_dgl()
    for step in range(6):
        if step in (2, 4):
            for r, change in enumerate(changes):
                x[graph.rows(r)] += 1 if change else 0
        whole.ndata["x"] = torch.from_numpy(x.copy())
        whole.update_all(dgl.function.copy_u("x", "m"), dgl.function.mean("m", "y"))
        for rank, one in enumerate(found):
            close(one["outputs"][step], whole.ndata["y"].numpy()[graph.rows(rank)], f"step {step}")
    sent = np.array([one["sent"] for one in found]).sum(0)
    changed = any(c and len(x[graph.rows(r)]) for r, c in enumerate(changes))
    assert sent[0] > 0 or workers.world == 1
    assert not sent[[1, 3, 5]].any()
    assert (sent[[2, 4]] == (sent[0] if changed else 0)).all()


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("changed_by", ["everybody", "rank 0", "the last rank"])
@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_what_changed_is_not_kept(workers: Workers, kind: str, changed_by: str, again: bool) -> None:
    """Every worker drops what a change on any worker made useless, and no more than that."""
    graph = make(kind, workers.world, seed=85)
    x = np.random.default_rng(86).standard_normal((graph.num_nodes, 3))
    last = graph.world - 1
    changes = [changed_by == "everybody" or r == (last if "last" in changed_by else 0) for r in range(graph.world)]
    found = workers.run(cases_memo.kept, graph.shares(x=x, ranks={"changes": changes}), again=again)
    whole = graph.of_dgl()
    still, changed = x.copy(), any(c and len(x[graph.rows(r)]) for r, c in enumerate(changes))
    for step in range(5):
        if step:
            for r, change in enumerate(changes):
                x[graph.rows(r)] += 1 if change else 0
        for number, (rows, reduce) in enumerate(((x, "mean"), (x, "sum"), (still, "mean"))):
            whole.ndata["x"] = torch.from_numpy(rows.copy())
            whole.update_all(dgl.function.copy_u("x", "m"), getattr(dgl.function, reduce)("m", "y"))
            for rank, one in enumerate(found):
                close(one["outputs"][step][number], whole.ndata["y"].numpy()[graph.rows(rank)], f"step {step}")
    wanted = [3 if step == 0 or again or not changed else 1 for step in range(5)]
    assert all(one["count"] == wanted and one["left"] == 0 for one in found), [one["count"] for one in found]
    sent = np.array([one["sent"] for one in found]).sum(0)
    assert (sent[1:] * 3 == (sent[0] * 2 if changed else 0)).all()


def test_a_tensor_with_gradient(workers: Workers) -> None:
    with pytest.raises(Exception, match="needs a gradient"):
        workers.run(cases_memo.refused, [{}] * workers.world)
