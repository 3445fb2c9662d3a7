"""What is not SAR's behaves as it does without it, with the replacements made and after they are taken back."""

from __future__ import annotations

import re

import pytest

from tests.support import replaced, same_text, warm

LAYERS = '''
import inspect, io, pickle, sys, types, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
import torch_geometric
import torch_geometric.nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import scatter, softmax as saved, subgraph
from torch_geometric.nn import global_mean_pool as pool
import sar

ADDED = types.ModuleType("added")
EDGES = torch.randint(0, 10, (2, 40), generator=torch.Generator().manual_seed(1))
X = torch.randn(10, 4, generator=torch.Generator().manual_seed(2))
MLP = lambda into: nn.Sequential(nn.Linear(into, 8), nn.ReLU(), nn.Linear(8, 8))
WAYS = [lambda k: k(4, 8), lambda k: k(4, 8, 2), lambda k: k(MLP(4)), lambda k: k(MLP(8)), lambda k: k(2)]
WAYS += [lambda k: k(2, 0.1), lambda k: k(4), lambda k: k(4, 0.1), lambda k: k(), lambda k: k(8, 2)]

MODELS = ["GCN", "GraphSAGE", "GAT", "GraphConv", "TransformerConv", "GraphNorm", "SumAggregation"]
FEW = ["GAT", "GraphConv"]
"""What is compiled where graphs are split over several workers: norms and pools ask all of these about their nodes."""

def layers(home):
    """A layer of each class that one of the ways makes, and that takes rows of nodes and an edge index."""
    found = {}
    for name in home.__all__:
        kind = getattr(home, name)
        if not isinstance(kind, type) or not issubclass(kind, nn.Module):
            continue
        for way in WAYS:
            torch.manual_seed(0)
            try:
                layer = way(kind).eval()
                for given in ((X, EDGES), (X, EDGES[1].sort()[0]), (X,)):
                    try:
                        found[name] = layer, given, layer(*given)
                        break
                    except Exception:
                        continue
            except Exception:
                continue
            if name in found:
                break
    return found

def forget():
    torch._C._jit_clear_class_registry()
    torch.jit._recursive.concrete_type_store = torch.jit._recursive.ConcreteTypeStore()
    torch.jit._state._clear_class_state()

def scripted(found):
    """Results of those layers that torch.jit.script takes, of every second one."""
    forget()
    results = {}
    for name, (layer, given, _) in list(found.items())[::2]:
        try:
            results[name] = torch.jit.script(layer)(*given)
        except Exception:
            pass
    return results

def compiled(found, names):
    """Results of the models that torch.compile takes whole."""
    results = {}
    for name in names:
        torch.manual_seed(0)
        model, given = found[name][:2] if name in found else (getattr(pyg, name)(4, 8, 2, 3).eval(), (X, EDGES))
        torch._dynamo.reset()
        try:
            results[name] = torch.compile(model, fullgraph=True, backend="eager")(*given)
        except Exception as error:
            results[name + " fails"] = str(error).strip().split(chr(10))[0]
    return results

def same(ours, theirs):
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(ours[name], value), name

def everything(models, scripts=scripted):
    found = {}
    for home in (pyg.conv, pyg.aggr, pyg.norm):
        found.update(layers(home))
    return {name: result for name, (*_, result) in found.items()}, scripts(found), compiled(found, models)

def state():
    """What torch_geometric's modules and classes hold, and a script."""
    held = {}
    for label, module in list(sys.modules.items()):
        if label.split(".")[0] in ("torch_geometric", "added", "__main__", "late"):
            for name, value in list(vars(module).items()):
                held[label, name] = value
                if isinstance(value, type) and str(value.__module__).startswith("torch_geometric"):
                    held.update({(str(value), key): v for key, v in vars(value).items() if callable(v)})
    return held

before = state()
from sar.integrations.pyg import over_nodes, patches
patches.adapt()
during = state()
replaced = [key for key in before if before[key] is not during.get(key)]
assert 50 < len(replaced) < 150 and not [key for key in replaced if key[0] == "__main__"], replaced

# modules that are imported while names are replaced
late = types.ModuleType("late")
sys.modules["late"] = late
exec("from torch_geometric.nn import global_mean_pool, GCNConv\\n"
     "from torch_geometric.nn.conv.gat_conv import softmax\\n"
     "from torch_geometric.utils import dropout_edge", vars(late))

ours = everything(MODELS)
over_nodes.seen.several = True
ours_of_several = everything(FEW, lambda found: {})
over_nodes.seen.several = False
# pickling, by value and by name
model, data = pyg.GAT(4, 8, 2, 3), Data(x=X, edge_index=EDGES)
THINGS = [model, data, saved, subgraph, scatter, pool, late.global_mean_pool, late.dropout_edge]
for thing in [*THINGS, pyg.GCNConv, pyg.GCNConv.forward, pyg.MessagePassing.aggregate]:
    again = pickle.loads(pickle.dumps(thing))
    assert not isinstance(thing, (type, types.FunctionType)) or again is thing
torch.save(data, io.BytesIO())
for name, kind in vars(pyg).items():
    if isinstance(kind, type) and hasattr(kind, "forward"):
        assert inspect.signature(kind.forward) == inspect.signature(inspect.unwrap(kind.forward)), name

sar.pyg.restore()
after = state()
assert [key for key in replaced if before[key] is not after.get(key)] == []
ours_still = [key for key, value in after.items() if getattr(value, "__code__", None) is during[replaced[0]].__code__]
assert ours_still == [], ours_still
for name in ("global_mean_pool", "softmax", "dropout_edge"):
    assert not hasattr(getattr(late, name), "__wrapped__"), name
assert late.softmax is saved
theirs = everything(MODELS)
for of_us, of_them in zip(ours, theirs):
    same(of_us, of_them)
for of_us, of_them in zip(ours_of_several, (theirs[0], {}, {name: theirs[2][name] for name in FEW})):
    same(of_us, of_them)
print("compared", *map(len, theirs), [name for name in theirs[2] if "fails" in name])
'''


def test_layers_of_pyg() -> None:
    """Results, torch.jit.script, torch.compile(fullgraph=True), pickling, signatures, and what is imported late; of one
    worker, and where graphs are split over several."""
    pytest.importorskip("torch_geometric")
    done = warm.run(["-c", LAYERS], timeout=300)
    found = re.search(r"compared (\d+) (\d+) (\d+) \[\]", done.stdout)
    assert done.returncode == 0 and found, done.stdout[-2000:] + done.stderr[-4000:]
    results, scripts, models = map(int, found.groups())
    assert results >= 50 and scripts >= 12 and models >= 7


def test_tables_of_what_is_replaced() -> None:
    """docs/process.md lists what sar.replaced() does."""
    dgl, pyg = pytest.importorskip("dgl"), pytest.importorskip("torch_geometric")
    names = replaced.listed()
    assert len({(owner, name) for owner, name, *_ in names}) == len(names) <= 122, "bindings"
    assert len({original for *_, original in names}) <= 40, "names: distinct functions that are replaced"
    assert all(owner.split(".")[0] in ("dgl", "torch_geometric") for owner, *_ in names)
    if dgl.__version__.startswith("1.1") and pyg.__version__.startswith("2.8"):
        page = replaced.PAGE.read_text()
        same_text(page, replaced.written(page, names), "python -m tests.support.replaced")
