"""docs/layers-pyg.md names every layer of ``torch_geometric.nn.conv``, and says of each what the tests say."""

from __future__ import annotations

import pytest

from tests.parity import cases_pyg_hetero, pyg_aggregations
from tests.parity.pyg_table import HETERO, PAGE, REFUSED, UNTRIED, by_layer, page
from tests.support import same_text

conv = pytest.importorskip("torch_geometric.nn.conv")
aggr = pytest.importorskip("torch_geometric.nn.aggr")


def test_every_layer_is_there_once() -> None:
    groups = [set(by_layer()), {"WLConv"}, set(HETERO), set(REFUSED), set(UNTRIED)]
    assert sum(map(len, groups)) == len(set.union(*groups)), "a layer is in two groups"
    assert set(conv.__all__) - {"MessagePassing"} == set.union(*groups)


def test_every_aggregation_is_there_once() -> None:
    run, refused = set(pyg_aggregations.AGGREGATIONS), set(pyg_aggregations.REFUSED)
    assert not run & refused and run | refused == set(aggr.__all__) - {"Aggregation"}
    for name, cases in pyg_aggregations.AGGREGATIONS.items():
        for spec in cases.values():
            assert name in {type(module).__name__ for module in spec.make().modules()}


def test_models_of_heterographs_have_the_layer() -> None:
    for layer, (names, _) in HETERO.items():
        for name in names.split():
            kinds = {type(module).__name__ for module in cases_pyg_hetero.MODELS[name]().modules()}
            assert layer in kinds, f"{name} does not run {layer} but {kinds}"


def test_refused_are_those_that_refuse() -> None:
    from sar.integrations.pyg import scripts

    assert set(scripts.OWN_WAYS) == set(REFUSED)


def test_the_page_is_what_the_tests_say() -> None:
    same_text(PAGE.read_text(), page(), "make docs-layers")
