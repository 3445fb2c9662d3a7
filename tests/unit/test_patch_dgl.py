"""What SAR replaces in DGL: by which names, all or nothing, and how it is taken back."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import sar
from tests.support import warm

MODULES = ["gatconv", "dotgatconv", "agnnconv"]


@pytest.fixture()
def unpatched() -> Iterator[None]:
    """DGL as it comes, whatever ran in this process before, and patched again afterwards."""
    sar.unpatch_dgl()
    yield
    sar.unpatch_dgl()
    importlib.import_module("sar.integrations.dgl.patches.layers").adapt()


def state() -> dict[str, Any]:
    """What any module or class of DGL's layers and functions holds by name."""
    found = {}
    for label, module in list(sys.modules.items()):
        if label.split(".")[0] == "dgl" and module is not None:
            for name, value in list(vars(module).items()):
                found[label, name] = value
                if isinstance(value, type) and value.__module__.startswith("dgl."):
                    found.update({(f"{label}.{name}", key): v for key, v in vars(value).items() if callable(v)})
    return found


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[Any]:
    return [key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)]


def random_graph() -> Any:
    rng = np.random.default_rng(90)
    return dgl.add_self_loop(dgl.graph((rng.integers(0, 20, 90), rng.integers(0, 20, 90)), num_nodes=20))


def test_names(unpatched: None) -> None:
    """Those that the Python package set, and that scripts check for."""
    original = dgl.nn.RelGraphConv
    sar.patch_dgl()
    sar.patch_dgl()
    for name in MODULES:
        assert importlib.import_module(f"dgl.nn.pytorch.conv.{name}").edge_softmax is sar.patched_edge_softmax
    for module in (dgl.nn, dgl.nn.pytorch, dgl.nn.pytorch.conv):
        assert module.RelGraphConv is sar.RelGraphConv
    assert isinstance(original(3, 2, 2), sar.RelGraphConv) and not isinstance(dgl.nn.GraphConv(3, 2), sar.RelGraphConv)


def test_everything_is_taken_back(unpatched: None) -> None:
    importlib.import_module("sar.integrations.dgl.patches.layers")
    before = state()
    sar.patch_dgl()
    assert len(changed(before, state())) > 20
    sar.unpatch_dgl()
    assert changed(before, state()) == []
    sar.patch_dgl()
    theirs = lambda *args: None  # noqa: E731
    dgl.nn.GATConv.forward, ours = theirs, dgl.nn.GATConv.forward
    sar.unpatch_dgl()
    assert dgl.nn.GATConv.forward is theirs  # somebody else's, which may call what was there
    dgl.nn.GATConv.forward = ours.__wrapped__
    while hasattr(dgl.nn.GATConv.forward, "__wrapped__"):
        dgl.nn.GATConv.forward = dgl.nn.GATConv.forward.__wrapped__


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("dgl.ops.edge_softmax", "edge_softmax_internal"),
        ("dgl.nn.pytorch", "SAGEConv"),
        ("dgl.ops.spmm", "gspmm_internal"),
    ]
    + [("dgl.nn.pytorch.conv.agnnconv", "edge_softmax"), ("dgl", "reverse")],
)
def test_a_missing_name(unpatched: None, monkeypatch: pytest.MonkeyPatch, owner: str, name: str) -> None:
    """An error that says which, the same each time, and nothing is replaced."""
    monkeypatch.delattr(importlib.import_module(owner), name)
    before = state()
    said = []
    for _ in range(2):
        with pytest.raises(RuntimeError) as raised:
            sar.patch_dgl()
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert f"dgl {dgl.__version__} has no {owner}.{name}" in said[0] and "Config.patch_dgl = False" in said[0]
    assert changed(before, state()) == []


def test_a_name_that_cannot_be_set(unpatched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was replaced before it is taken back."""

    class Locked(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise TypeError(f"{name} is locked")

    locked = Locked("LabelPropagation", (torch.nn.Module,), {"forward": lambda self, graph, feat: feat})
    monkeypatch.setattr(dgl.nn.pytorch, "LabelPropagation", locked)
    before = state()
    with pytest.raises(TypeError, match="forward is locked"):
        sar.patch_dgl()
    assert changed(before, state()) == []


def test_layers_on_graphs_of_dgl(unpatched: None) -> None:
    """The same numbers to the bit where DGL's own code runs, with the same arguments."""
    graph, x = random_graph(), torch.randn(20, 4)
    made = {name: getattr(dgl.nn, name) for name in ("GATConv", "DotGatConv", "AGNNConv")}
    layers = {name: kind(*(() if name == "AGNNConv" else (4, 3, 2))) for name, kind in made.items()}
    before = {name: layer(graph, x) for name, layer in layers.items()}
    softmax = importlib.import_module("dgl.nn.pytorch.conv.gatconv").edge_softmax
    logits, some = torch.randn(graph.num_edges(), 2), torch.tensor([3, 1, 7])
    values = softmax(graph, logits), softmax(graph, logits, norm_by="src"), softmax(graph, logits[some], some)
    sar.patch_dgl()
    for name, layer in layers.items():
        assert torch.equal(layer(graph, x), before[name]), name
    patched = importlib.import_module("dgl.nn.pytorch.conv.gatconv").edge_softmax
    assert list(inspect.signature(patched).parameters) == list(inspect.signature(softmax).parameters)
    after = patched(graph, logits), patched(graph, logits, norm_by="src"), patched(graph, logits[some], some)
    assert all(map(torch.equal, values, after))


@pytest.mark.parametrize("regularizer", [None, "basis", "bdd"])
@pytest.mark.parametrize("block", [False, True], ids=["graph", "block"])
def test_relgraphconv_on_graphs_of_dgl(unpatched: None, regularizer: str | None, block: bool) -> None:
    """Parameters from the same seed, state dicts, results and gradients are those of DGL's class."""
    graph = random_graph()
    if block:
        graph = dgl.to_block(dgl.in_subgraph(graph, torch.arange(9)), torch.arange(9))
    original = dgl.nn.RelGraphConv
    sar.patch_dgl()
    given: dict[str, Any] = {"regularizer": regularizer, "num_bases": 2, "layer_norm": True, "activation": torch.tanh}
    layers, results = [], []
    for kind in (original, dgl.nn.RelGraphConv):
        torch.manual_seed(91)
        layers.append(kind(4, 6, 3, **given))
    theirs, ours = layers
    assert [k for k in theirs.state_dict()] == [k for k in ours.state_dict()]
    assert all(torch.equal(v, ours.state_dict()[k]) for k, v in theirs.state_dict().items())
    theirs.load_state_dict(ours.state_dict())
    signatures = [list(inspect.signature(kind.forward).parameters) for kind in (original, dgl.nn.RelGraphConv)]
    assert signatures[0] == signatures[1]
    torch.manual_seed(92)
    x, norm = torch.randn(graph.num_src_nodes(), 4), torch.rand(graph.num_edges(), 1)
    etypes = torch.randint(0, 3, (graph.num_edges(),))
    for layer in layers:
        feature = x.clone().requires_grad_()
        out = layer(graph, feature, etypes, norm)
        out.square().sum().backward()
        results.append([out.detach(), feature.grad, *(p.grad for _, p in sorted(layer.named_parameters()))])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b)
    assert not graph.edata.keys() - {"_ID"} and not set(graph.srcdata) - {"_ID"}


LATER = """
import sys
import sar
from sar.integrations.dgl.patches.on_import import adapt_layers
sar.Config.patch_dgl = {switch}
adapt_layers()
assert "dgl" not in sys.modules
import importlib, importlib.abc, importlib.util

class Older(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname != "dgl.ops.edge_softmax":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        execute = spec.loader.exec_module
        def run(module):
            execute(module)
            {remove}
        spec.loader.exec_module = run
        sys.meta_path.insert(0, self)
        return spec

sys.meta_path.insert(0, Older())
said = []
for _ in range(2):
    try:
        import dgl
    except RuntimeError as error:
        said.append(str(error))
{check}
"""
MISSING = (
    'assert len(said) == 2 and said[0] == said[1] and "no dgl.ops.edge_softmax.edge_softmax_internal" in said[0], said'
)
PATCHED = """
assert not said and hasattr(dgl.reverse, "__wrapped__")
assert importlib.import_module("dgl.ops.edge_softmax").edge_softmax_internal.__name__ == "edge_softmax"
"""
SWITCHED_OFF = """
assert not said and not hasattr(dgl.reverse, "__wrapped__")
sar.patch_dgl()
assert hasattr(dgl.reverse, "__wrapped__")
"""


@pytest.mark.parametrize(
    ("switch", "remove", "check"),
    [(True, "pass", PATCHED), (True, "del module.edge_softmax_internal", MISSING), (False, "pass", SWITCHED_OFF)],
    ids=["patched", "missing", "switched_off"],
)
def test_dgl_imported_after_the_first_graph(switch: bool, remove: str, check: str) -> None:
    program = LATER.format(switch=switch, remove=remove, check=check)
    done = warm.run(["-c", program])
    assert done.returncode == 0, done.stderr
