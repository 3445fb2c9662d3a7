"""GAT's layer in one piece, also by blocks of columns (``memory_efficient=True``), against ``dgl.nn.GATConv`` on the
whole graph and against the layer's own steps."""

from __future__ import annotations

import copy
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import sar.nn
from sar.autograd.fused import gat_columns
from tests.parity import cases_gat, one_piece
from tests.parity.cases_gat import ACTIVATIONS
from tests.parity.one_piece import arguments, drawn, oracle
from tests.support.graphs import KINDS, close, make
from tests.support.sessions import Workers

COLUMNS: dict[str, Any] = {"library": "sar", "efficient": True, "merge": "mean", "dtype": "float64"}


class Merging(dgl.nn.GATConv):
    """DGL's layer, and what scripts do with the heads after it."""

    merge: str | None = None

    def forward(self, graph: Any, feat: Any) -> Any:
        out = super().forward(graph, feat)
        return out.flatten(1) if self.merge == "flatten" else out.mean(1) if self.merge == "mean" else out


def both(
    workers: Workers,
    kind: str = "random",
    library: str = "dgl",
    width: int = 5,
    dtype: str = "float32",
    needs: Any = True,
    options: dict[str, Any] | None = None,
    efficient: bool = False,
    merge: str | None = None,
    activation: str = "none",
    **more: Any,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the workers found, and DGL on the whole graph. ``needs``: whether x needs a gradient, or on which ranks;
    ``efficient``: by columns, which are two blocks a head."""
    chosen: dict[str, Any] = {"out_feats": 40 if efficient else 3, "num_heads": 2, **(options or {})}
    heads, each = chosen["num_heads"], chosen["out_feats"]
    shape = {None: (heads, each), "flatten": (heads * each,), "mean": (each,)}[merge]
    graph, x, grad = drawn(kind, workers.world, 81, width, shape, dtype)
    torch.manual_seed(6)
    function = copy.deepcopy(ACTIVATIONS[activation])
    layer = Merging(width, **chosen, activation=function, allow_zero_in_degree=True).to(torch.from_numpy(x).dtype)
    layer.merge = merge
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    expected = oracle(layer, graph, x, grad, elu=bool(more.get("after")))
    expected.update(needs=needs, efficient=efficient)
    chosen.update({"memory_efficient": True, "merge": merge} if efficient else {})
    given = {"library": library, "options": chosen, "activation": activation, "state": expected["state"], **more}
    return workers.run(cases_gat.step, arguments(graph, x, grad, needs), **given), expected


def check(found: list[dict[str, Any]], expected: dict[str, Any], frozen: tuple[str, ...] = (), pieces: int = 1) -> None:
    one_piece.check(found, expected, frozen, 5.0 if expected["efficient"] else 3.0)
    assert not expected["efficient"] or [one["pieces"] for one in found] == [pieces] * len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_graphs(workers: Workers, kind: str) -> None:
    for dtype, library in (("float32", "dgl"), ("float64", "dgl"), ("float64", "sar")):
        found, expected = both(workers, kind, library, dtype=dtype)
        check(found, expected)
        assert all(one["pieces"] == 1 for one in found)
    check(*both(workers, kind, **COLUMNS))
    check(*both(workers, kind, **{**COLUMNS, "merge": "flatten"}, activation="elu"))
    check(*both(workers, kind, **{**COLUMNS, "merge": None, "dtype": "float32"}, activation="elu"))


@pytest.mark.parametrize("merge", [None, "flatten", "mean"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_merges_and_activations(two: Workers, merge: str | None, activation: str) -> None:
    check(*both(two, **{**COLUMNS, "merge": merge}, activation=activation))


@pytest.mark.parametrize("form", [{"dtype": "float64"}, {**COLUMNS, "merge": "flatten", "activation": "elu"}])
@pytest.mark.parametrize(
    "options", [{"num_heads": 1, "out_feats": 47}, {"out_feats": 1}, {"bias": False}, {"negative_slope": 0.01}]
)
def test_widths(two: Workers, options: dict[str, Any], form: dict[str, Any]) -> None:
    for width in (1, 47):
        check(*both(two, width=width, options=options, **form))


@pytest.mark.parametrize("form", [{}, COLUMNS], ids=["whole", "columns"])
def test_who_needs_gradients(two: Workers, form: dict[str, Any]) -> None:
    for needs in (False, (1,)):
        found, expected = both(two, needs=needs, **form)
        check(found, expected)
        assert found[0]["x"] is None
    for frozen in (("fc.weight",), ("attn_l",), ("fc.weight", "attn_l", "attn_r"), ("bias", "attn_r")):
        check(*both(two, frozen=frozen, **form), frozen)
        check(*both(two, frozen=frozen, needs=False, **form), frozen)
    everything = ("fc.weight", "attn_l", "attn_r", "bias")
    check(*both(two, frozen=everything, needs=(0,), **form), everything)
    found, expected = both(two, frozen=everything, needs=False, **form)
    assert not any(one["needs"] or expected["efficient"] and one["pieces"] for one in found)


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


def test_a_hook_on_one_rank_decides_for_all(two: Workers) -> None:
    check(*both(two, **COLUMNS, activation="elu", hook_on=1), pieces=0)


def test_a_hook_on_an_activation_is_local(two: Workers) -> None:
    """There the activation is applied to the whole result; messages are the same."""
    options = {"num_heads": 2, "out_feats": 100}
    check(*both(two, width=300, **COLUMNS, activation="in place", options=options, hook_on=1, hooked="activation"))


def test_computed_again(few: Workers) -> None:
    """Under ``sar.remat``."""
    check(*both(few, **{**COLUMNS, "merge": "flatten"}, activation="elu", remat=True), pieces=2)


def test_dropout_by_columns(workers: Workers) -> None:
    """A head has one mask for all its columns and both passes, and other heads have other masks."""
    graph = make("random", workers.world, seed=93)
    rng = np.random.default_rng(94)
    x, grad = rng.standard_normal((graph.num_nodes, 5)), rng.standard_normal((graph.num_nodes, 60))
    for layer, heads in workers.run(cases_gat.dropped, graph.shares(x=x, grad=grad), seed=95):
        for name in ("out", "x", "fc.weight"):
            close(layer[name], heads[name], name, 5.0)
        if layer["out"].size:
            one, other = layer["x"], layer["out"]
            assert np.isfinite(one).all() and np.abs(other).max() > 0


@pytest.mark.parametrize("merge", ["flatten", "mean"])
def test_only_the_input_is_saved(two: Workers, merge: str) -> None:
    graph = make("random", 2, seed=96)
    x = np.random.default_rng(97).standard_normal((graph.num_nodes, 64)).astype("float32")
    own = graph.shares(x=x)
    for rank, found in enumerate(two.run(cases_gat.kept, own, merge=merge)):
        rows = own[rank]["x"].nbytes
        assert found["efficient"] <= rows + 4096
        assert found["plain"] > 2 * rows or not rows


def test_without_gradients(few: Workers) -> None:
    graph = make("random", few.world, seed=98)
    x = np.random.default_rng(99).standard_normal((graph.num_nodes, 7)).astype("float32")
    for found in few.run(cases_gat.without_gradients, graph.shares(x=x)):
        close(found["without"], found["with"], "the result", 5.0)
        assert found["fused"] >= 1


def test_arguments() -> None:
    with pytest.raises(ValueError, match="merge='sum' is unknown"):
        sar.nn.GATConv(2, 2, 2, merge="sum")
    for bad in ({"in_feats": 2, "residual": True}, {"in_feats": (2, 3)}):
        with pytest.raises(ValueError, match="no residual connection"):
            sar.nn.GATConv(**bad, out_feats=2, num_heads=2, memory_efficient=True)  # type: ignore[arg-type]


def test_blocks() -> None:
    """They cover a head, in widths that differ by one at most."""
    for each in (1, 16, 17, 40, 172):
        found = list(gat_columns._blocks(each, 16))
        assert [b.start for b in found] == [0, *(b.stop for b in found[:-1])] and found[-1].stop == each
        sizes = {b.stop - b.start for b in found}
        assert max(sizes) <= 16 and max(sizes) - min(sizes) <= 1
