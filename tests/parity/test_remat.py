"""Modules that keep their inputs alone and are computed again in backward."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import sar
import sar.nn
from tests.parity import cases_remat
from tests.support.graphs import close, make
from tests.support.sessions import Workers


@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_layers(workers: Workers, kind: str) -> None:
    """The same numbers to the bit, dropout and running statistics included, with less kept."""
    graph = make(kind, workers.world, seed=60)
    rng = np.random.default_rng(61)
    x, grad = (rng.standard_normal((graph.num_nodes, 32)) for _ in range(2))
    for plain, again in workers.run(cases_remat.remat_layers, graph.shares(x=x, grad=grad)):
        for key in ("out", "x"):
            np.testing.assert_array_equal(again[key], plain[key])
        for group in ("parameters", "state"):
            for name, value in plain[group].items():
                np.testing.assert_array_equal(again[group][name], value, err_msg=name)
        rows, small = plain["x"].nbytes, 4096  # seeds, statistics
        assert again["kept"]["bytes"] <= 2 * rows + small
        if rows > small:
            assert plain["kept"]["bytes"] > 3 * rows


@pytest.mark.parametrize("activation", ["none", "relu", "leaky_relu", "elu", "gelu", "tanh", "sigmoid"])
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_norm_activation_dropout(two: Workers, activation: str, share: float) -> None:
    rng = np.random.default_rng(62)
    for rows in ([5000, 30], [9, 0]):
        arguments = [
            {"x": rng.standard_normal((n, 8)) + 2, "grad": rng.standard_normal((n, 8)), "needs": True} for n in rows
        ]
        for one, apart in two.run(cases_remat.fused, arguments, activation=activation, share=share):
            for key in ("out", "x", "weight", "bias", "mean"):
                close(one[key], apart[key], key)
            size = one["x"].nbytes
            assert one["kept"] <= size + 4096
            if activation == "elu" and size > 100_000:  # ReLU keeps nothing of its own behind batch norm
                assert apart["kept"] > 1.5 * size
            if share and activation == "tanh" and size > 100_000:
                assert abs(one["zeros"] / one["out"].size - share) < 0.02


def test_some_workers_need_no_gradient(two: Workers) -> None:
    rng = np.random.default_rng(63)
    arguments = [
        {"x": rng.standard_normal((20, 8)), "grad": rng.standard_normal((20, 8)), "needs": needs}
        for needs in (True, False)
    ]
    for one, apart in two.run(cases_remat.fused, arguments, activation="relu", share=0.0):
        for key in ("out", "x", "weight", "bias"):
            close(one[key], apart[key], key)


def test_wrapping() -> None:
    """Names, types, copies and pickles stay; wrapping twice is wrapping once; it can be taken back."""
    layer = nn.Linear(2, 3)
    before = list(layer.state_dict())
    assert sar.remat(sar.remat(layer)) is layer and isinstance(layer, nn.Linear)
    assert list(layer.state_dict()) == before
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.weight is not layer.weight and torch.equal(other.weight, layer.weight)
        x = torch.ones(1, 2, requires_grad=True)
        other(x).sum().backward()
        assert other.weight.grad is not None and layer.weight.grad is None
    assert type(sar.remat(layer, enabled=False)) is nn.Linear
    with pytest.raises(TypeError, match="function"):
        sar.remat(lambda x: x)  # type: ignore[type-var]


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="swish"):
        sar.nn.BatchNormAct(3, "swish")
    with pytest.raises(ValueError, match="share"):
        sar.nn.BatchNormAct(3, dropout=1.5)


def test_inputs_kept_as_bfloat16() -> None:
    """Results to the bit, gradients within the rounding of inputs, half of the bytes kept; leaves are not rounded."""
    torch.manual_seed(7)
    x = torch.randn(500, 64)
    plain = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(3)))
    results = []
    for dtype in (None, torch.bfloat16, "none"):
        model = copy.deepcopy(plain)
        kept: dict[int, int] = {}
        if dtype != "none":
            for block in model:
                sar.remat(block, dtype=dtype)  # type: ignore[arg-type]
        out = model(x)
        inputs = [box for box in gc.get_objects() if type(box).__name__ == "_Box"]
        for box in inputs:
            assert box.first is None and box.kept.dtype == torch.bfloat16
            kept[id(box)] = box.kept.nbytes
        if dtype is torch.bfloat16:
            assert list(kept.values()) == [x.nbytes // 2] * 2
        del inputs
        out.square().sum().backward()
        results.append((out.detach(), [p.grad for p in model.parameters()]))
        del out
        gc.collect()
    (out, exact), (rounded_out, rounded), (_, without) = results
    assert torch.equal(out, rounded_out)
    for a, b, c in zip(exact, rounded, without):
        assert torch.equal(a, c)
        error = float((a - b).norm() / a.norm())
        assert error < 2**-8
    assert any(not torch.equal(a, b) for a, b in zip(exact, rounded))
    with pytest.raises(TypeError, match="float16"):
        sar.remat(nn.Linear(2, 2), dtype=torch.float16)


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=None), nn.InstanceNorm1d(4, track_running_stats=True)]
)
def test_statistics_of_norms_stay(norm: nn.Module) -> None:
    """A step moves running statistics as it does without, whatever the norm counts."""
    again = sar.remat(copy.deepcopy(norm))
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(8))
    for module in (norm, again):
        module(x.clone().requires_grad_()).square().sum().backward()
    assert not torch.equal(norm.running_mean, torch.zeros(4))
    for name, value in norm.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
