"""Products of bfloat16, by torch and by rows that are widened: the nearest numbers, or their neighbours."""

from __future__ import annotations

import pytest
import torch

from sar.autograd import recomputed
from sar.autograd.fused import linear, row_blocks

HALF = torch.bfloat16


@pytest.mark.parametrize("native", [True, False], ids=["by torch", "widened"])
@pytest.mark.parametrize(("rows", "width", "out"), [(5003, 256, 47), (2049, 1, 3), (1, 300, 1), (0, 5, 4)])
def test_products(monkeypatch: pytest.MonkeyPatch, native: bool, rows: int, width: int, out: int) -> None:
    monkeypatch.setattr(row_blocks, "multiplies_bfloat16", lambda: native)
    torch.manual_seed(0)
    x, w, f, bias = (torch.randn(*shape).to(HALF) for shape in ((rows, width), (out, width), (rows, out), (out,)))
    given = torch.randn(rows, out).to(HALF)
    exact = {name: t.double() for name, t in {"x": x, "w": w, "f": f, "bias": bias, "given": given}.items()}
    product = exact["x"] @ exact["w"].t()
    into = torch.empty(rows, out, dtype=HALF)
    assert row_blocks.multiply(x, w.t(), out=into) is into
    near(row_blocks.multiply(x, w.t()), product)
    near(into, product)
    near(row_blocks.affine(x, w.t(), bias), product + exact["bias"])
    near(row_blocks.affine(x, w.t(), None), product)
    near(row_blocks.add_product(given.clone(), x, w.t()), exact["given"] + product)
    near(row_blocks.add_product(given.float(), x, w.t()), exact["given"] + product, torch.float32)
    near(row_blocks.over_rows(f, x), exact["f"].t() @ exact["x"])


def near(found: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype = HALF) -> None:
    """Rounded once. What cancels out has the rounding of float32 of what it is made of."""
    assert found.dtype == dtype and found.shape == exact.shape
    if exact.numel():
        error = (found.double() - exact).abs() - 2**-8 * exact.abs() - 1e-4 * exact.abs().max()
        assert error.max() <= (0 if dtype == HALF else 2**-7 * exact.abs().max())


def test_other_types_are_left_to_torch() -> None:
    x, w = torch.randn(40, 8), torch.randn(8, 3)
    assert torch.equal(row_blocks.multiply(x, w), x.mm(w)) and torch.equal(row_blocks.over_rows(x, x), x.t().mm(x))
    assert torch.equal(row_blocks.affine(x, w, w[0]), torch.addmm(w[0], x, w))


def test_factors_of_different_types_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "multiplies_bfloat16", lambda: False)
    with pytest.raises(RuntimeError, match="dtype"):
        row_blocks.multiply(torch.randn(4, 3).to(HALF), torch.randn(3, 2))


def test_results_that_others_see_are_saved() -> None:
    """They may be changed where torch does not count it (``h.data``), so backward must not compute them again."""
    x, layer = torch.randn(4, 3), torch.nn.Linear(3, 2)
    seen = linear.linear(x, layer.weight, layer.bias)
    assert recomputed.values_of(seen) is None
    with linear.computed_again(layer):
        assert recomputed.values_of(layer(x)) is not None
