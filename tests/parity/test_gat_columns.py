"""GAT's layer by blocks of columns (``memory_efficient=True``), against ``dgl.nn.GATConv`` on the whole graph."""

from __future__ import annotations

import copy
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import sar.nn
from sar.autograd.fused import gat_columns
from tests.parity import cases_gat_columns, one_piece
from tests.parity.cases_gat_columns import ACTIVATIONS
from tests.parity.one_piece import arguments, drawn, oracle
from tests.support.graphs import KINDS, close, make
from tests.support.sessions import Workers

OPTIONS = {"out_feats": 40, "num_heads": 2}  # two blocks a head


class Merging(dgl.nn.GATConv):
    """DGL's layer, and what scripts do with the heads after it."""

    merge: str | None = None

    def forward(self, graph: Any, feat: Any) -> Any:
        out = super().forward(graph, feat)
        return out.flatten(1) if self.merge == "flatten" else out.mean(1) if self.merge == "mean" else out


def both(
    workers: Workers,
    kind: str = "random",
    merge: str | None = None,
    activation: str = "none",
    width: int = 5,
    dtype: str = "float32",
    needs: Any = True,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the workers found, and DGL on the whole graph. ``needs``: whether x needs a gradient, or on which ranks."""
    chosen = {**OPTIONS, **(options or {})}
    heads, each = chosen["num_heads"], chosen["out_feats"]
    shape = {None: (heads, each), "flatten": (heads * each,), "mean": (each,)}[merge]
    graph, x, grad = drawn(kind, workers.world, 91, width, shape, dtype)
    torch.manual_seed(6)
    function = copy.deepcopy(ACTIVATIONS[activation])
    layer = Merging(width, **chosen, activation=function, allow_zero_in_degree=True).to(torch.from_numpy(x).dtype)
    layer.merge = merge
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    expected = {**oracle(layer, graph, x, grad), "needs": needs}
    given = {"options": {**chosen, "merge": merge}, "activation": activation, "state": expected["state"], **more}
    return workers.run(cases_gat_columns.step, arguments(graph, x, grad, needs), **given), expected


def check(found: list[dict[str, Any]], expected: dict[str, Any], frozen: tuple[str, ...] = (), pieces: int = 1) -> None:
    one_piece.check(found, expected, frozen, 5.0)
    assert [one["pieces"] for one in found] == [pieces] * len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_graphs(workers: Workers, kind: str) -> None:
    check(*both(workers, kind, "mean", "none", dtype="float64"))
    check(*both(workers, kind, "flatten", "elu", dtype="float64"))
    check(*both(workers, kind, None, "elu", dtype="float32"))


@pytest.mark.parametrize("merge", [None, "flatten", "mean"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_merges_and_activations(two: Workers, merge: str | None, activation: str) -> None:
    check(*both(two, "random", merge, activation, dtype="float64"))


@pytest.mark.parametrize(
    "options", [{"num_heads": 1, "out_feats": 47}, {"out_feats": 1}, {"bias": False}, {"negative_slope": 0.01}]
)
def test_widths(two: Workers, options: dict[str, Any]) -> None:
    for width in (1, 47):
        check(*both(two, "random", "flatten", "elu", width, "float64", options=options))


def test_who_needs_gradients(two: Workers) -> None:
    for needs in (False, (1,)):
        found, expected = both(two, merge="mean", needs=needs, dtype="float64")
        check(found, expected)
        assert found[0]["x"] is None
    for frozen in (("fc.weight",), ("attn_l", "attn_r"), ("bias", "attn_r")):
        check(*both(two, merge="mean", frozen=frozen, dtype="float64"), frozen)
    everything = ("fc.weight", "attn_l", "attn_r", "bias")
    check(*both(two, frozen=everything, needs=(0,), dtype="float64"), everything)
    found, _ = both(two, frozen=everything, needs=False)
    assert not any(one["needs"] or one["pieces"] for one in found)


def test_a_hook_on_one_rank_decides_for_all(two: Workers) -> None:
    check(*both(two, merge="mean", activation="elu", dtype="float64", hook_on=1), pieces=0)


def test_a_hook_on_an_activation_is_local(two: Workers) -> None:
    """There the activation is applied to the whole result; messages are the same."""
    options = {"num_heads": 2, "out_feats": 100}
    check(*both(two, "random", "mean", "in place", 300, "float64", options=options, hook_on=1, hooked="activation"))


def test_computed_again(few: Workers) -> None:
    """Under ``sar.remat``."""
    check(*both(few, merge="flatten", activation="elu", dtype="float64", remat=True), pieces=2)


def test_dropout(workers: Workers) -> None:
    """A head has one mask for all its columns and both passes, and other heads have other masks."""
    graph = make("random", workers.world, seed=93)
    rng = np.random.default_rng(94)
    x, grad = rng.standard_normal((graph.num_nodes, 5)), rng.standard_normal((graph.num_nodes, 60))
    for layer, heads in workers.run(cases_gat_columns.dropped, graph.shares(x=x, grad=grad), seed=95):
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
    for rank, found in enumerate(two.run(cases_gat_columns.kept, own, merge=merge)):
        rows = own[rank]["x"].nbytes
        assert found["efficient"] <= rows + 4096
        assert found["plain"] > 2 * rows or not rows


def test_without_gradients(few: Workers) -> None:
    graph = make("random", few.world, seed=98)
    x = np.random.default_rng(99).standard_normal((graph.num_nodes, 7)).astype("float32")
    for found in few.run(cases_gat_columns.without_gradients, graph.shares(x=x)):
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
