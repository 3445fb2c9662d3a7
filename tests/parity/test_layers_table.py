"""docs/layers.md names every layer of ``dgl.nn``, and says of each what the tests say."""

from __future__ import annotations

import re

import dgl
import torch

from tests.parity import cases_layers
from tests.parity.layers_table import ELSEWHERE, NO_GRAPH, PAGE, REFUSED, by_layer, page
from tests.support import same_text


def layers() -> set[str]:
    kinds = {name: kind for name, kind in vars(dgl.nn.pytorch).items() if isinstance(kind, type)}
    return {name for name, kind in kinds.items() if issubclass(kind, torch.nn.Module)}


def test_every_layer_is_there_once() -> None:
    groups = [set(by_layer()), set(REFUSED), set(NO_GRAPH), set(ELSEWHERE)]
    assert sum(map(len, groups)) == len(set.union(*groups)), "a layer is in two groups"
    missing = layers() - set.union(*groups)
    assert not missing, f"layers that nobody tried: {sorted(missing)}"


def test_refused_are_those_that_refuse() -> None:
    made = {type(spec.make(dgl.nn)).__name__ for spec in cases_layers.REFUSED.values()}
    assert made <= set(REFUSED)


def test_the_page_is_what_the_tests_say() -> None:
    """Apart from measurements, which ``make docs-layers`` takes."""
    bare = re.compile(r"\| yes \| [0-9.]* ?\| [0-9.]* ?\|")
    same_text(*(bare.sub("| yes | | |", text) for text in (PAGE.read_text(), page({}, {}))), "make docs-layers")
