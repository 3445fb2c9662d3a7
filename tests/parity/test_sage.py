"""GraphSAGE's mean in one piece against ``dgl.nn.SAGEConv`` on the whole graph: values and all gradients."""

from __future__ import annotations

from typing import Any

import dgl
import pytest
import torch

from tests.parity import cases_sage
from tests.parity.one_piece import arguments, check, drawn, oracle
from tests.support.graphs import KINDS
from tests.support.sessions import Workers

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
    graph, x, grad = drawn(kind, workers.world, 71, widths[0], (widths[1],), dtype)
    torch.manual_seed(5)
    layer = dgl.nn.SAGEConv(*widths, "mean", bias=bias).to(torch.from_numpy(x).dtype)
    expected = oracle(layer, graph, x, grad)
    expected["needs"] = needs
    given = {"library": library, "out_feats": widths[1], "state": expected["state"], **options}
    return workers.run(cases_sage.step, arguments(graph, x, grad, needs), **given), expected


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


@pytest.mark.parametrize("unfused", [(0,), (0, 1)])
@pytest.mark.parametrize("library", ["dgl", "sar"])
def test_switched_off(two: Workers, library: str, unfused: tuple[int, ...]) -> None:
    """Config.fuse = False on one rank or on both: the layer's own steps there, the same numbers everywhere. Layers as
    wide as their input are those whose steps send something else than the fused form."""
    found, expected = both(two, library=library, unfused=unfused)
    check(found, expected)
    assert [one["pieces"] for one in found] == [int(rank not in unfused) for rank in range(2)]


@pytest.mark.parametrize("hooked", ["hook", "forward"])
@pytest.mark.parametrize("library", ["dgl", "sar"])
def test_hooks_are_called(two: Workers, library: str, hooked: str) -> None:
    """A linear map that is more than its weight is called as a module."""
    found, expected = both(two, library=library, hooked=hooked)
    check(found, expected)
    assert all(one["hooks"] == 1 and one["pieces"] == 0 for one in found)
