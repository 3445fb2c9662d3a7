"""DistributedBN1D against torch's BatchNorm1d on all rows, and the moments that scripts build their own of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import sar
from sar import DistributedBN1D
from tests.parity import cases_training
from tests.support.graphs import close
from tests.support.sessions import Workers

FEATURES = 6


def split(world: int, rows: int, empty: bool, seed: int = 0) -> list[slice]:
    """Rows of each rank; with ``empty`` the last of several ranks has none."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, rows + 1, world - 1))
    if empty and world > 1:
        cuts[-1] = rows
    bounds = [0, *cuts.tolist(), rows]
    return [slice(a, b) for a, b in zip(bounds[:-1], bounds[1:])]


def values(rows: int, dtype: str, offset: float = 0.0) -> np.ndarray:
    return (np.random.default_rng(5).standard_normal((rows, FEATURES)) + offset).astype(dtype)


def oracle(
    x: np.ndarray, grad: np.ndarray, affine: bool, weight: np.ndarray, bias: np.ndarray
) -> dict[str, np.ndarray]:
    norm = torch.nn.BatchNorm1d(FEATURES, affine=affine).to(torch.from_numpy(x).dtype)
    if affine:
        with torch.no_grad():
            norm.weight.copy_(torch.from_numpy(weight))
            norm.bias.copy_(torch.from_numpy(bias))
    rows = torch.from_numpy(x.copy()).requires_grad_()
    out = norm(rows)
    out.backward(torch.from_numpy(grad))
    assert rows.grad is not None and norm.running_mean is not None and norm.running_var is not None
    found = {"out": out.detach().numpy(), "x": rows.grad.numpy(), "mean": norm.running_mean.numpy()}
    found["var"] = norm.running_var.numpy()
    if affine:
        assert norm.weight.grad is not None and norm.bias.grad is not None
        found.update(weight=norm.weight.grad.numpy(), bias=norm.bias.grad.numpy())
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_against_torch(workers: Workers, offset: float, empty: bool, affine: bool, dtype: str) -> None:
    x = values(53, dtype, offset)
    rng = np.random.default_rng(6)
    grad = rng.standard_normal(x.shape).astype(dtype)
    weight, bias = rng.standard_normal((2, FEATURES)).astype(dtype)
    expected = oracle(x, grad, affine, weight, bias)
    slices = split(workers.world, len(x), empty)
    arguments = [{"x": x[s], "grad": grad[s]} for s in slices]
    results = workers.run(cases_training.batch_norm, arguments, affine=affine, weight=weight, bias=bias)
    loose = 2000 if offset else 10  # the input itself is rounded to 100 * 6e-8 in single precision
    for rank, (result, rows) in enumerate(zip(results, slices)):
        close(result["out"], expected["out"][rows], f"output of rank {rank}", loose)
        close(result["x"], expected["x"][rows], f"gradient of rank {rank}", loose)
        for key in ("weight", "bias") if affine else ():
            close(result[key], expected[key], f"gradient of {key}, rank {rank}", loose)
        close(result["mean"], expected["mean"], "running mean", loose)
        close(result["var"], expected["var"], "running variance", loose)


SHAPES = {"BatchNorm1d": (7,), "BatchNorm2d": (3, 2), "BatchNorm3d": (2, 1, 3), "HeteroBatchNorm": ()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", SHAPES)
def test_converted(few: Workers, kind: str, dtype: str) -> None:
    """Every batch norm of torch and PyG, converted, against itself on all rows: values, gradients, buffers."""
    if kind == "HeteroBatchNorm":
        pytest.importorskip("torch_geometric")
    rng = np.random.default_rng(10)
    x, grad = rng.standard_normal((2, 41, FEATURES, *SHAPES[kind])).astype(dtype)
    types = rng.integers(0, 3, len(x))  # of 4
    types[:5] = 0
    torch.manual_seed(3)
    plain = torch.nn.ModuleDict({"norm": cases_training.BATCH_NORMS[kind](FEATURES)}).to(torch.from_numpy(x).dtype)
    for p in plain.parameters():
        torch.nn.init.normal_(p)
    state = {name: v.numpy().copy() for name, v in plain.state_dict().items()}
    expected = cases_training.normalized(plain, x, grad, types)
    slices = split(few.world, len(x), True, seed=5)
    given = [{"x": x[s], "grad": grad[s], "types": types[s]} for s in slices]
    for rank, (found, rows) in enumerate(zip(few.run(cases_training.converted, given, kind=kind, state=state), slices)):
        assert found.keys() == expected.keys()
        for name, value in found.items():
            own = expected[name][rows] if name in ("out", "after", "x") else expected[name]
            close(value, own, f"{name} of rank {rank}", 30)


def test_batch_norms_that_cannot_be_converted() -> None:
    class Own(torch.nn.modules.batchnorm._BatchNorm):
        pass

    with pytest.raises(ValueError, match="deep.0 is a LazyBatchNorm1d that has seen no rows yet: run one forward"):
        sar.convert_batchnorm(torch.nn.ModuleDict({"deep": torch.nn.Sequential(torch.nn.LazyBatchNorm1d())}))
    with pytest.raises(ValueError, match="norm is a Own, which cannot be made global"):
        sar.convert_batchnorm(torch.nn.ModuleDict({"norm": Own(3)}))
    twice = torch.nn.BatchNorm2d(3)
    model = sar.convert_batchnorm(torch.nn.ModuleDict({"a": twice, "b": twice}))
    assert model["a"] is model["b"] and model["a"].weight is twice.weight


def test_large_offsets_do_not_destroy_the_variance(workers: Workers) -> None:
    """E[x²] - E[x]² would give noise here: 1e6 squared leaves no digits for a variance of 1 in double precision sums
    of single precision values; the merged moments keep it."""
    x = values(64, "float64", 1e6)
    slices = split(workers.world, len(x), True, seed=1)
    arguments = [{"x": x[s], "grad": np.ones_like(x[s])} for s in slices]
    ones, zeros = np.ones(FEATURES), np.zeros(FEATURES)
    results = workers.run(cases_training.batch_norm, arguments, affine=True, weight=ones, bias=zeros)
    out = np.concatenate([r["out"] for r in results])
    exact = x.astype(np.longdouble)
    exact = (exact - exact.mean(0)) / np.sqrt(exact.var(0) + 1e-5)
    assert np.abs(out - exact.astype(np.float64)).max() < 1e-8


def test_no_gradient_is_needed_anywhere(workers: Workers) -> None:
    x = values(20, "float32")
    slices = split(workers.world, len(x), False, seed=2)
    results = workers.run(cases_training.batch_norm_no_grad, [{"x": x[s]} for s in slices])
    assert results == [[False, False]] * workers.world


def test_a_gradient_that_one_rank_alone_needs(workers: Workers) -> None:
    x = values(40, "float64")
    grad = np.random.default_rng(8).standard_normal(x.shape)
    expected = oracle(x, grad, False, np.ones(FEATURES), np.zeros(FEATURES))
    slices = split(workers.world, len(x), False, seed=3)
    arguments = [{"x": x[s], "grad": grad[s], "needs": rank == 0} for rank, s in enumerate(slices)]
    results = workers.run(cases_training.batch_norm, arguments, affine=False, weight=None, bias=None)
    close(results[0]["x"], expected["x"][slices[0]], "gradient of rank 0", 10)
    assert all(r["x"] is None for r in results[1:])


def test_moments(workers: Workers) -> None:
    """MeanOp is E[x] and VarOp is E[x²]; gradients of both, where every rank's loss depends on them."""
    x = values(33, "float64")
    rng = np.random.default_rng(9)
    slices = split(workers.world, len(x), True, seed=4)
    upstream = rng.standard_normal((workers.world, 2, FEATURES))
    rows = torch.from_numpy(x.copy()).requires_grad_()
    total = torch.from_numpy(upstream.sum(0))
    (rows.mean(0) * total[0] + (rows * rows).mean(0) * total[1]).sum().backward()
    assert rows.grad is not None
    results = workers.run(cases_training.moments, [{"x": x[s], "grad": upstream[r]} for r, s in enumerate(slices)])
    for rank, (result, own) in enumerate(zip(results, slices)):
        close(result["mean"], x.mean(0), "mean")
        close(result["square"], (x * x).mean(0), "mean square")
        close(result["x"], rows.grad.numpy()[own], f"gradient of rank {rank}")


def test_without_workers() -> None:
    x, grad = values(30, "float32"), values(30, "float32")[::-1].copy()
    weight, bias = values(2, "float32")
    expected = oracle(x, grad, True, weight, bias)
    norm = DistributedBN1D(FEATURES, distributed=False)
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(weight))
        norm.bias.copy_(torch.from_numpy(bias))
    rows = torch.from_numpy(x).requires_grad_()
    out = norm(rows)
    out.backward(torch.from_numpy(grad))
    close(out.detach().numpy(), expected["out"], "output", 10)
    close(rows.grad.numpy(), expected["x"], "gradient", 10)
    close(norm.weight.grad.numpy(), expected["weight"], "gradient of weight", 10)
    assert list(norm.state_dict()) == ["weight", "bias"]


def test_running_statistics_are_used_after_eval() -> None:
    norm = DistributedBN1D(FEATURES, affine=False, distributed=False, track_running_stats=True, momentum=None)
    reference = torch.nn.BatchNorm1d(FEATURES, affine=False, momentum=None)
    for seed in range(3):
        batch = torch.from_numpy(np.random.default_rng(seed).standard_normal((9, FEATURES)).astype("float32"))
        norm(batch), reference(batch)
    norm.eval(), reference.eval()
    close(norm(batch).numpy(), reference(batch).numpy(), "output", 10)
    assert set(norm.state_dict()) == {"running_mean", "running_var", "num_batches_tracked"}


def test_messages() -> None:
    norm = DistributedBN1D(FEATURES, distributed=False)
    with pytest.raises(ValueError, match=r"\(4, 5\).*expected \(n, 6\)"):
        norm(torch.zeros(4, 5))
    with pytest.raises(TypeError, match="int64"):
        norm(torch.zeros(4, FEATURES, dtype=torch.int64))
    with pytest.raises(ValueError, match="no worker has a row"):
        norm(torch.zeros(0, FEATURES))
    out = norm(torch.randn(4, FEATURES, requires_grad=True))
    (g,) = torch.autograd.grad(out.square().sum(), norm.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable|twice"):
        g.sum().backward()
