"""GraphSAGE's mean in one piece against ``dgl.nn.SAGEConv`` on the whole graph: values and all gradients."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import pytest
import torch

from conftest import Workers
from graphs import KINDS, close, make

WIDTHS = [(5, 5), (9, 4), (4, 9), (1, 47), (47, 1)]


def both(
    workers: Workers,
    kind: str = "random",
    library: str = "dgl",
    widths: tuple[int, int] = (5, 5),
    dtype: str = "float32",
    bias: bool = True,
    needs: Any = True,
    **options: Any,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the workers found, and DGL on the whole graph. ``needs``: whether x needs a gradient, or on which ranks."""
    graph = make(kind, workers.world, seed=71)
    rng = np.random.default_rng(72)
    x = rng.standard_normal((graph.num_nodes, widths[0])).astype(dtype)
    grad = rng.standard_normal((graph.num_nodes, widths[1])).astype(dtype)
    whole = dgl.graph((torch.from_numpy(graph.src), torch.from_numpy(graph.dst)), num_nodes=graph.num_nodes)
    torch.manual_seed(5)
    layer = dgl.nn.SAGEConv(*widths, "mean", bias=bias).to(torch.from_numpy(x).dtype)
    rows = torch.from_numpy(x.copy()).requires_grad_()
    out = layer(whole, rows)
    out.backward(torch.from_numpy(grad))
    expected = {"out": out.detach().numpy(), "x": rows.grad.numpy(), "graph": graph}
    expected.update({name: p.grad.numpy() for name, p in layer.named_parameters()})
    state = {name: value.numpy() for name, value in layer.state_dict().items()}
    wanted = [needs if isinstance(needs, bool) else r in needs for r in range(graph.world)]
    arguments = [
        {
            "part": graph.part(r),
            "x": x[graph.rows(r)],
            "grad": grad[graph.rows(r)],
            "needs": wanted[r],
        }
        for r in range(graph.world)
    ]
    given = {"library": library, "out_feats": widths[1], "state": state, **options}
    return workers.run("cases_sage:step", arguments, **given), expected


def check(found: list[dict[str, Any]], expected: dict[str, Any], frozen: tuple[str, ...] = ()) -> None:
    graph = expected["graph"]
    for rank, one in enumerate(found):
        close(one["out"], expected["out"][graph.rows(rank)], "out")
        if one["x"] is not None:
            close(one["x"], expected["x"][graph.rows(rank)], "gradient of x")
        for name, value in expected.items():
            if name.startswith("fc_"):
                if name in frozen:
                    assert one[name] is None, name
                else:
                    close(one[name], value, name)


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("kind", ["random", "empty_worker"])
def test_widths(workers: Workers, kind: str, widths: tuple[int, int]) -> None:
    for library, needs, bias in (("dgl", True, True), ("sar", True, False), ("dgl", False, False)):
        found, expected = both(workers, kind, library, widths, needs=needs, bias=bias)
        check(found, expected)
        assert all(one["pieces"] == 1 and (one["x"] is not None) == needs for one in found)


@pytest.mark.parametrize("kind", KINDS)
def test_graphs(workers: Workers, kind: str) -> None:
    for dtype in ("float32", "float64"):
        check(*both(workers, kind, dtype=dtype))


@pytest.mark.parametrize("widths", [(5, 5), (9, 4), (4, 9)])
def test_who_needs_gradients(two: Workers, widths: tuple[int, int]) -> None:
    """Only one worker's rows, or not all parameters, or nothing at all."""
    found, expected = both(two, widths=widths, needs=(1,))
    check(found, expected)
    assert found[0]["x"] is None and found[1]["x"] is not None
    for frozen in (("fc_neigh.weight",), ("fc_self.weight", "fc_self.bias"), ("fc_neigh.weight", "fc_self.weight")):
        check(*both(two, widths=widths, frozen=frozen), frozen)
    everything = ("fc_neigh.weight", "fc_self.weight", "fc_self.bias")
    found, _ = both(two, widths=widths, needs=False, frozen=everything)
    assert not any(one["needs"] for one in found)
    found, expected = both(two, widths=widths, needs=(0,), frozen=everything)
    check(found, expected, everything)
    assert found[0]["x"] is not None


def test_rows_that_are_not_contiguous(two: Workers) -> None:
    check(*both(two, strided=True))


@pytest.mark.parametrize("hooked", ["hook", "forward"])
@pytest.mark.parametrize("library", ["dgl", "sar"])
def test_hooks_are_called(two: Workers, library: str, hooked: str) -> None:
    """A linear map that is more than its weight is called as a module."""
    found, expected = both(two, library=library, hooked=hooked)
    check(found, expected)
    assert all(one["hooks"] == 1 and one["pieces"] == 0 for one in found)
