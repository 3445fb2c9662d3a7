"""Batch norm and dropout of rows in bfloat16 against torch in float64 on the whole graph, and against float32."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sar._engine import columns
from tests.parity import cases_bfloat16_columns as cases
from tests.parity.test_bfloat16 import HALF, SINGLE, check, half
from tests.support.graphs import make
from tests.support.pool import Pool
from tests.support.sessions import Workers

FORMS = [(name, share) for name in ("none", "relu", "elu", "gelu") for share in (0.0, 0.4)]
FORMS += [("modules", 0.4), ("dropout", 0.4)]
AFTER: dict[str, Callable[..., Any]] = {"relu": F.relu, "elu": F.elu, "gelu": F.gelu, "modules": F.relu}


def whole(x: np.ndarray, grad: np.ndarray, activation: str, mask: np.ndarray | None) -> dict[str, Any]:
    """The same by torch in float64."""
    rows = torch.from_numpy(x).double().requires_grad_()
    norm = torch.nn.BatchNorm1d(x.shape[1]).double()
    for p in norm.parameters():
        made = torch.empty(p.shape)  # float32, as the workers draw them
        p.data = torch.nn.init.uniform_(made, 0.5, 1.5, generator=torch.Generator().manual_seed(1)).double()
    out = rows if activation == "dropout" else norm(rows)
    out = AFTER.get(activation, lambda h: h)(out)
    if mask is not None:
        out = out * torch.from_numpy(mask)
    out.backward(torch.from_numpy(grad).double())
    params = [] if activation == "dropout" else [p.grad for p in norm.parameters()]
    return {"out": out.detach().numpy(), "x": rows.grad.numpy(), "params": [p.numpy() for p in params if p is not None]}


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize(("kind", "width"), [("random", 47), ("empty_worker", 1)])
def test_forms(pool: Pool, world: int, kind: str, width: int) -> None:
    """Results and gradients are those of float64, rounded once, for any number of workers. What is torch's, or a
    module of its own, rounds its gradient, too."""
    graph = make(kind, world, seed=31)
    rng = np.random.default_rng(32)
    x, grad = (half(rng.standard_normal((graph.num_nodes, width)) + 0.3) for _ in range(2))
    found = Workers(pool, world, "shm").run(cases.forms, graph.shares(x=x, grad=grad), forms=FORMS)
    for n, (activation, share) in enumerate(FORMS):
        what = f"{activation}, dropout {share}"
        mask = np.concatenate([one[n]["out"][1] for one in found]) != 0 if share else None
        if mask is not None:
            assert activation in ("relu", "modules") or abs((~mask).mean() - share) < 5 * (0.25 / mask.size) ** 0.5
        exact = whole(x, grad, activation, None if mask is None else mask / (1 - share))
        for rank, one in enumerate(found):
            rows = graph.rows(rank)
            check(one[n]["out"], exact["out"][rows], HALF, what)
            twice = activation in ("elu", "gelu", "modules")
            check(one[n]["x"], exact["x"][rows], HALF, f"gradient, {what}", 2 if twice else 1, 0.01 if twice else 1e-4)
            for mine, wanted in zip(one[n]["params"], exact["params"]):
                check(mine, wanted, SINGLE, f"gradient of a parameter, {what}", 2, 0.02 if twice else 1e-5)


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("shape", [(0, 3), (3, 1), (700, 47), (1, 5000)])
def test_engine(shape: tuple[int, int], keys: bool) -> None:
    """Rows in bfloat16 give the bits of the same rows in float32, rounded."""
    torch.manual_seed(0)
    x, grad = torch.randn(shape).bfloat16(), torch.randn(shape).bfloat16()
    numbers = torch.randn(5, shape[1])
    drop = columns.Dropout(0.3, 5, torch.randperm(shape[0]) if keys else None, 7)
    one, other = columns.moments(x), columns.moments(x.float())
    assert torch.equal(one.mean, other.mean) and torch.equal(one.m2, other.m2)
    results = []
    for rows, of_result in ((x, grad), (x.float(), grad.float())):
        out, of_rows, back = (torch.empty_like(rows) for _ in range(3))
        columns.normalize(rows, numbers[:3], True, drop, out)
        sums = columns.normalize_sums(of_result, rows, numbers[:3], True, drop)
        columns.normalize_back(of_result, rows, numbers[:3], True, drop, of_rows)
        columns.normalize_grad(of_result, rows, numbers, True, drop, back)
        results.append((out.bfloat16(), of_rows.bfloat16(), back.bfloat16(), *sums))
    for mine, wanted in zip(*results):
        assert torch.equal(mine, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_not_finite(dtype: torch.dtype) -> None:
    """Dropout multiplies by 0, as torch's does: NaN and infinity become NaN where they are dropped."""
    x = torch.tensor([[float("nan"), float("inf"), 1.0, -1.0]] * 200).repeat(1, 12).to(dtype)
    for share in (0.5, 1.0):
        out, ones = torch.empty_like(x), torch.empty_like(x)
        drop = columns.Dropout(share, 5, None)
        columns.normalize(x, None, False, drop, out)
        columns.normalize(torch.ones_like(x), None, False, drop, ones)
        torch.testing.assert_close(out, x * ones, rtol=0, atol=0, equal_nan=True)
        assert ones.eq(0).any()
    theirs = F.dropout(x, 1.0)
    torch.testing.assert_close(out, theirs, rtol=0, atol=0, equal_nan=True)
