"""GAT's layer in one piece, against ``dgl.nn.GATConv`` on the whole graph and against the layer's own steps."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_gat, one_piece
from tests.parity.one_piece import arguments, drawn, oracle
from tests.support.graphs import KINDS, close
from tests.support.sessions import Workers

OPTIONS = {"out_feats": 3, "num_heads": 2}


def both(
    workers: Workers,
    kind: str = "random",
    library: str = "dgl",
    width: int = 5,
    dtype: str = "float32",
    needs: Any = True,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the workers found, and DGL on the whole graph. ``needs``: whether x needs a gradient, or on which ranks."""
    chosen = {**OPTIONS, **(options or {})}
    graph, x, grad = drawn(kind, workers.world, 81, width, (chosen["num_heads"], chosen["out_feats"]), dtype)
    torch.manual_seed(6)
    layer = dgl.nn.GATConv(width, **chosen, allow_zero_in_degree=True).to(torch.from_numpy(x).dtype)
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    expected = oracle(layer, graph, x, grad, elu=bool(more.get("after")))
    expected["needs"] = needs
    given = {"library": library, "options": chosen, "state": expected["state"], **more}
    return workers.run(cases_gat.step, arguments(graph, x, grad, needs), **given), expected


def check(found: list[dict[str, Any]], expected: dict[str, Any], frozen: tuple[str, ...] = ()) -> None:
    one_piece.check(found, expected, frozen, 3.0)


@pytest.mark.parametrize("kind", KINDS)
def test_graphs(workers: Workers, kind: str) -> None:
    for dtype, library in (("float32", "dgl"), ("float64", "dgl"), ("float64", "sar")):
        found, expected = both(workers, kind, library, dtype=dtype)
        check(found, expected)
        assert all(one["pieces"] == 1 for one in found)


@pytest.mark.parametrize("options", [{"num_heads": 1, "out_feats": 47}, {"out_feats": 1}, {"bias": False}])
def test_widths(two: Workers, options: dict[str, Any]) -> None:
    for width in (1, 47):
        check(*both(two, width=width, options=options, dtype="float64"))


def test_who_needs_gradients(two: Workers) -> None:
    for needs in (False, (1,)):
        found, expected = both(two, needs=needs)
        check(found, expected)
        assert found[0]["x"] is None
    for frozen in (("fc.weight",), ("attn_l",), ("fc.weight", "attn_l", "attn_r"), ("bias", "attn_r")):
        check(*both(two, frozen=frozen), frozen)
        check(*both(two, frozen=frozen, needs=False), frozen)
    everything = ("fc.weight", "attn_l", "attn_r", "bias")
    found, _ = both(two, frozen=everything, needs=False)
    assert not any(one["needs"] for one in found)
    check(*both(two, frozen=everything, needs=(0,)), everything)


@pytest.mark.parametrize("bias", [True, False])
def test_what_follows_may_work_in_place(two: Workers, bias: bool) -> None:
    for after in ("elu", "in place"):
        check(*both(two, after=after, options={"bias": bias}))


def test_dropout_is_that_of_the_steps(workers: Workers) -> None:
    """The same edges are dropped, and gradients are those of that mask."""
    options = {"attn_drop": 0.4}
    one, expected = both(workers, options=options, dtype="float64")
    apart, _ = both(workers, options=options, dtype="float64", apart=True)
    assert all(a["pieces"] == 1 for a in one) and all(b["pieces"] == 0 for b in apart)
    for a, b in zip(one, apart):
        for name in ("out", "x", "fc.weight", "attn_l", "attn_r", "bias"):
            close(a[name], b[name], name)
    differ = [np.abs(a["out"] - expected["out"][expected["graph"].rows(r)]).max(initial=0) for r, a in enumerate(one)]
    assert max(differ) > 1e-3


@pytest.mark.parametrize("turned", ["on in evaluation", "off in training", "another module"])
def test_dropout_that_a_script_has_changed(two: Workers, turned: str) -> None:
    """Its own mode counts, as for samples of a posterior; and what stands in its place is called."""
    options = {"attn_drop": 0.4}
    one, expected = both(two, options=options, dtype="float64", turned=turned)
    apart, _ = both(two, options=options, dtype="float64", turned=turned, apart=True)
    for a, b in zip(one, apart):
        assert a["pieces"] == (0 if turned == "another module" else 1) and b["pieces"] == 0
        for name in ("out", "x", "fc.weight", "attn_l", "attn_r", "bias"):
            close(a[name], b[name], name)
    whole, _ = both(two, dtype="float64")
    same = all(np.allclose(a["out"], b["out"]) for a, b in zip(one, whole))
    assert same == (turned != "on in evaluation")
