"""Models that sar.prepare prepares, on workers; and as they are, on the whole graph."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Callable

import numpy as np
import torch
from torch import Tensor, nn

import sar
from sar._engine import schedule
from tests.parity.observed_models import fused
from tests.support.worker import build

IN, HIDDEN, OUT = 9, 6, 4
"""The first layer makes its rows narrower: there PyG's SAGEConv asks all workers in each forward."""


class Layers(nn.Module):
    """Two layers of DGL and a batch norm of torch."""

    def __init__(self, make: Callable[[Any, int, int], nn.Module]) -> None:
        import dgl

        super().__init__()
        self.first, self.second = make(dgl.nn, IN, HIDDEN), make(dgl.nn, HIDDEN, OUT)
        self.norm, self.dropout = nn.BatchNorm1d(HIDDEN), nn.Dropout(0.0)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        x = self.dropout(self.norm(self.first(graph, x).flatten(1)).relu())
        out: Tensor = self.second(graph, x).flatten(1)
        return out


class Sars(nn.Module):
    """Layers of ``sar.nn``, and a batch norm that is there already."""

    def __init__(self) -> None:
        import sar.nn

        super().__init__()
        self.first, self.norm = sar.nn.SAGEConv(IN, HIDDEN, "mean"), sar.DistributedBN1D(HIDDEN)
        self.second = sar.nn.GATConv(HIDDEN, OUT, 1, allow_zero_in_degree=True, merge="mean")

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        out: Tensor = self.second(graph, self.norm(self.first(graph, x)).relu())
        return out


class Pooled(nn.Module):
    """A normalization over the graph and a pool of PyG."""

    def __init__(self) -> None:
        import torch_geometric.nn as pyg

        super().__init__()
        self.first, self.norm = pyg.SAGEConv(IN, HIDDEN), pyg.GraphNorm(HIDDEN)
        self.pool, self.out = pyg.MeanAggregation(), nn.Linear(HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        x = self.norm(self.first(x, edge_index)).relu()
        out: Tensor = self.out(self.pool(x) + x)
        return out


def _gin(home: Any, into: int, out: int) -> nn.Module:
    return home.GINConv(nn.Sequential(nn.Linear(into, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, out)))


DGL: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: Layers(lambda home, i, o: home.GraphConv(i, o, allow_zero_in_degree=True)),
    "sage": lambda: Layers(lambda home, i, o: home.SAGEConv(i, o, "mean")),
    "gat": lambda: Layers(lambda home, i, o: home.GATConv(i, o // 2, 2, allow_zero_in_degree=True)),
    "gin": lambda: Layers(_gin),
}
PYG: dict[str, Callable[[Any], nn.Module]] = {
    "gcn": lambda home: home.GCN(IN, HIDDEN, 2, OUT, norm="batch_norm"),
    "sage": lambda home: home.GraphSAGE(IN, HIDDEN, 2, OUT, norm="batch_norm"),
    "gat": lambda home: home.GAT(IN, HIDDEN, 2, OUT, heads=2, norm="batch_norm"),
    "gin": lambda home: home.GIN(IN, HIDDEN, 2, OUT, norm="batch_norm"),
    "pooled": lambda home: Pooled(),
}


def model_of(library: str, name: str, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(3)
    if library == "pyg":
        import torch_geometric.nn as home

        return PYG[name](home).to(dtype)
    return (Sars() if library == "sar" else DGL[name]()).to(dtype)


def run(model: nn.Module, library: str, graph: Any, x: np.ndarray, grad: np.ndarray, alone: bool) -> dict[str, Any]:
    """Two steps: the second forward takes what the first one kept. Values, gradients, and buffers after it."""
    rows = torch.from_numpy(x.copy()).requires_grad_()
    given = (rows, graph) if library == "pyg" else (graph, rows)
    model(*given).sum().backward()
    model.zero_grad()
    rows.grad = None
    out = model(*given)
    out.backward(torch.from_numpy(grad))
    if not alone:
        sar.gather_grads(model)
    assert rows.grad is not None
    found = {"out": out.detach().numpy(), "x": rows.grad.numpy()}
    found.update({name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None})
    found.update({name: b.numpy().copy() for name, b in model.named_buffers()})
    with torch.no_grad():
        found["eval"] = model.eval()(*given).numpy()
    return found


def prepared(part: dict[str, Any], library: str, name: str, x: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    """A prepared model, and what is left of it when it is restored."""
    graph = build(part)
    given = sar.pyg.edge_index(graph) if library == "pyg" else graph
    model = model_of(library, name, torch.from_numpy(x).dtype)
    before = {path: dict(vars(module)) for path, module in model.named_modules()}
    state = {key: value.clone() for key, value in model.state_dict().items()}
    assert sar.prepare(model, given) is model and model.state_dict().keys() == state.keys()
    again = pickle.loads(pickle.dumps(model))
    assert vars(again).get("_sar_prepared") == () and all(
        not hasattr(vars(m).get("forward"), "choice") for m in again.modules()
    )
    copied = copy.deepcopy(model)
    found = run(model, library, given, x, grad, False)
    other = run(copied, library, given, x, grad, False)
    for key, value in other.items():
        np.testing.assert_array_equal(value, found[key], key)
    assert all(vars(m)["forward"].module is m for m in copied.modules() if hasattr(vars(m).get("forward"), "choice"))
    found["choices"] = [tuple(one) for one in sar.describe(model)]
    found["shown"] = str(sar.describe(copied))
    model.train()
    sar.restore(model)
    for path, module in model.named_modules():
        assert vars(module).keys() == before[path].keys(), path
        assert all(vars(module)[key] is value for key, value in before[path].items() if key != "distributed"), path
    return found


def operations(part: dict[str, Any], name: str, x: np.ndarray) -> list[int]:
    """Collective operations of a forward: as it is, prepared, and restored."""
    index, counts = sar.pyg.edge_index(build(part)), []
    model = sar.convert_batchnorm(model_of("pyg", name, torch.float64))
    for change in (lambda m: m, lambda m: sar.prepare(m, index), sar.restore):
        change(model)
        with torch.no_grad():
            model(torch.from_numpy(x), index)
            begin = schedule.last().number
            model(torch.from_numpy(x), index)
            counts.append(schedule.last().number - begin)
    return counts


def disagreeing(part: dict[str, Any], x: np.ndarray, how: str) -> Any:
    """What a rank says whose model is another one, or can do less."""
    graph, odd = build(part), sar.rank() == 1
    index = sar.pyg.edge_index(graph)
    model: Any = model_of("pyg", "sage", torch.float64)
    if how == "class" and odd:
        model.convs[1] = model_of("pyg", "gcn", torch.float64).convs[1]
    elif how == "width" and odd:
        model.convs[0] = type(model.convs[0])(IN, HIDDEN + 1)
    elif how == "length" and odd:
        model.more = nn.Linear(2, 2)
    elif how == "replaced" and odd:
        model.norms[0].module.forward = lambda x: x
    elif how == "hook" and odd:
        model.convs[0].lin_l.register_forward_hook(lambda *_: None)
    elif how == "graph":
        index = torch.zeros(2, 3, dtype=torch.int64)
    try:
        sar.prepare(model, index)
    except Exception as error:
        return type(error).__name__, str(error)
    if how == "changed":
        with fused(False):
            try:
                model(torch.from_numpy(x), index)
            except Exception as error:
                return type(error).__name__, str(error)
    return [tuple(one)[:4] for one in sar.describe(model) if one.kind == "SAGEConv"]
