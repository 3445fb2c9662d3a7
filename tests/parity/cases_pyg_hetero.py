"""Heterographs with layers and models of ``torch_geometric.nn``: the same for PyG and for the workers."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
from torch import nn

import sar
from sar.graph.edge_index.index import SplitEdgeIndex
from tests.parity import pyg_pairs
from tests.support.hetero import KINDS, TRIPLES
from tests.support.worker import data_of, default_dtype, numpy, refusal

IN, OUT = 6, 4
METADATA = (list(KINDS), TRIPLES)
EDGES_WITH_COLUMNS = pyg_pairs.WRITES
WIDTH = pyg_pairs.WIDTH
"""Of the columns of those edges."""


class Twice(nn.Module):
    """Two HeteroConv, as PyG's guide to heterographs has them: three kinds of layers, of unknown widths."""

    def __init__(self, aggr: str) -> None:
        from torch_geometric.nn import GATConv, GCNConv, HeteroConv, SAGEConv

        super().__init__()

        def layer(triple: tuple[str, str, str]) -> nn.Module:
            if triple[0] == triple[2]:
                return GCNConv(-1, OUT)  # adds self loops
            if triple[1] == "in":
                return GATConv((-1, -1), OUT, add_self_loops=False)
            return SAGEConv((-1, -1), OUT)

        self.layers = nn.ModuleList(HeteroConv({t: layer(t) for t in TRIPLES}, aggr=aggr) for _ in range(2))

    def forward(self, x_dict: dict[str, Any], edge_index_dict: dict[Any, Any]) -> dict[str, Any]:
        for layer in self.layers:
            x_dict = {kind: x.relu() for kind, x in layer(x_dict, edge_index_dict).items()}
        return x_dict


class WithColumns(nn.Module):
    """Layers that take columns of edges."""

    with_columns = True

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        from torch_geometric.nn import HeteroConv

        super().__init__()
        self.layer = HeteroConv({EDGES_WITH_COLUMNS: layer()})

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
        return self.layer(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)


def _nn() -> Any:
    import torch_geometric.nn

    return torch_geometric.nn


def _to_hetero(make: Callable[[], nn.Module]) -> nn.Module:
    made: nn.Module = _nn().to_hetero(make(), METADATA, aggr="mean")
    return made


class _Gat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = _nn().GATConv((-1, -1), 3, heads=2, add_self_loops=False)
        self.second = _nn().SAGEConv((-1, -1), OUT)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "hetero_conv": lambda: Twice("sum"),
    "hetero_conv_max": lambda: Twice("max"),
    "hetero_gatv2_columns": lambda: WithColumns(
        lambda: _nn().GATv2Conv((IN, IN), OUT, heads=2, edge_dim=WIDTH, add_self_loops=False)
    ),
    "hetero_nn_columns": lambda: WithColumns(lambda: _nn().NNConv((IN, IN), OUT, nn.Linear(WIDTH, IN * OUT))),
    "to_hetero_sage": lambda: _to_hetero(lambda: _nn().GraphSAGE((-1, -1), 8, 2, OUT, jk="cat")),
    "to_hetero_gat": lambda: _to_hetero(_Gat),
    "hgt": lambda: _nn().HGTConv(IN, IN, METADATA, heads=2),  # adds its input, which is as wide
    "hgt_again": lambda: sar.remat(_nn().HGTConv(IN, IN, METADATA, heads=2)),
    "hgt_wide": lambda: _nn().HGTConv(-1, 8, METADATA, heads=4),
    "han": lambda: _nn().HANConv(IN, 8, METADATA, heads=2),
    "han_attention": lambda: _Attention(),
    "hetero_jumping": lambda: _Jumping(),
    **pyg_pairs.LAYERS,
}


class _Attention(nn.Module):
    """HANConv with the attention of relations."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = _nn().HANConv(IN, OUT, METADATA)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        out, attention = self.layer(x_dict, edge_index_dict, return_semantic_attention_weights=True)
        return {kind: x * attention[kind].max() for kind, x in out.items()}


class _Jumping(nn.Module):
    """HeteroDictLinear, two layers, HeteroJumpingKnowledge."""

    def __init__(self) -> None:
        super().__init__()
        self.first = _nn().HeteroDictLinear(IN, OUT, types=list(KINDS))
        convs = {triple: _nn().GraphConv((OUT, OUT), OUT) for triple in TRIPLES}
        self.layer = _nn().HeteroConv(convs, aggr="mean")
        self.jumping = _nn().HeteroJumpingKnowledge(list(KINDS), "lstm", OUT, 2)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        first = self.first(x_dict)
        second = self.layer(first, edge_index_dict)
        return self.jumping({kind: [first[kind], second[kind]] for kind in KINDS})


# ---- running -------------------------------------------------------------------


def step(
    name: str,
    edge_index_dict: Any,
    x: dict[str, np.ndarray],
    columns: np.ndarray,
    dtype: str,
    state: Any = None,
    grads: Any = None,
) -> dict[str, Any]:
    """Results and all gradients.

    :param state: parameters; drawn where there are none
    :param grads: of the results; likewise
    """
    with default_dtype(getattr(torch, dtype)):
        torch.manual_seed(5)
        model = MODELS[name]()
        leaves = {kind: torch.from_numpy(value.astype(dtype)).requires_grad_() for kind, value in x.items()}
        edge = torch.from_numpy(columns.astype(dtype)).requires_grad_()
        more = ({EDGES_WITH_COLUMNS: edge},) if getattr(model, "with_columns", False) else ()
        with torch.no_grad():  # widths of layers are known after the first call
            model(leaves, edge_index_dict, *more)
        if state is None:
            for parameter in model.parameters():
                nn.init.normal_(parameter, std=0.5)
        else:
            model.load_state_dict({k: torch.from_numpy(v).to(getattr(torch, dtype)) for k, v in state.items()})
        saved = numpy(model.state_dict())
        out = {
            kind: value for kind, value in sorted(model(leaves, edge_index_dict, *more).items()) if value is not None
        }
        rng = np.random.default_rng(6)
        grads = grads or {kind: rng.standard_normal(tuple(value.shape)) for kind, value in out.items()}
        torch.autograd.backward(list(out.values()), [torch.from_numpy(grads[k].astype(dtype)) for k in out])
        found = {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in model.named_parameters()}
        inputs = {k: torch.zeros_like(v) if v.grad is None else v.grad for k, v in leaves.items()}
        edge_grad = torch.zeros_like(edge) if edge.grad is None else edge.grad
    given = {"state": saved, "grads": grads, "out": out, "x": inputs, "parameters": found, "edges": edge_grad}
    return {key: numpy(value) for key, value in given.items()}


def layer(part: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The same on a worker; of parameters it has a part of the gradient."""
    graph = sar.construct_full_graph(data_of(part))
    return step(edge_index_dict={triple: sar.pyg.edge_index(graph[triple]) for triple in TRIPLES}, **given)


# ---- data ----------------------------------------------------------------------


def loaded(path: str) -> dict[str, Any]:
    """What :func:`sar.pyg.load` gives, and a layer on it."""
    data = sar.pyg.load(path)
    found: dict[str, Any] = {"repr": repr(data), "metadata": data.metadata(), "nodes": {}, "edges": {}}
    for kind in data.node_types:
        found["nodes"][kind] = {key: value for key, value in data[kind].items() if torch.is_tensor(value)}
        found["nodes"][kind]["num_nodes"] = data[kind].num_nodes
    for triple in data.edge_types:
        store = data[triple]
        ids = store.edge_index.graph.column_nodes()
        columns = {key: value for key, value in store.items() if key != "edge_index"}
        found["edges"][triple] = {"size": list(store.edge_index.shape), "columns": list(columns), "ids": ids}
    torch.manual_seed(7)
    layers = {triple: _nn().SAGEConv((6, 6), 2, bias=False) for triple in data.edge_types if "field" not in triple}
    out = _nn().HeteroConv(layers)(data.x_dict, data.edge_index_dict)
    weights = data["paper", "cites", "paper"].w
    found["weights"] = float(weights.sum()) if weights.dim() else 0.0
    return {**found, "nodes": numpy(found["nodes"]), "edges": numpy(found["edges"]), "out": numpy(out)}


def trained(data: Any, nodes: int) -> dict[str, Any]:
    """The weights that a model for papers begins with, and this worker's share of its losses in double precision."""
    with default_dtype(torch.float64):
        torch.manual_seed(11)
        model = nn.ModuleList(_nn().HGTConv(6, 6, data.metadata(), heads=2) for _ in range(2))
        begin = {name: value.detach().clone() for name, value in model.named_parameters()}
        optimizer, losses = torch.optim.Adam(model.parameters(), 0.05), []
        for _ in range(5):
            x = {kind: value.double() for kind, value in data.x_dict.items()}
            for one in model:
                x = one(x, data.edge_index_dict)
            loss = (x["paper"] - data["paper"].y.remainder(5).unsqueeze(1)).square().sum() / nodes
            optimizer.zero_grad()
            loss.backward()
            if isinstance(data["paper", "cites", "paper"].edge_index, SplitEdgeIndex):
                sar.gather_grads(model)
            optimizer.step()
            losses.append(loss.detach())
    return numpy({"weights": begin, "losses": torch.stack(losses)})


def trained_on_parts(path: str, nodes: int) -> dict[str, Any]:
    """The same on a worker."""
    return trained(sar.pyg.load(path), nodes)


def refused(part: dict[str, Any]) -> list[str]:
    """What is not done with the relations of a split graph, and what it says."""
    from torch_geometric.data import HeteroData

    graph = sar.construct_full_graph(data_of(part))
    data = HeteroData()
    for triple in TRIPLES:
        data[triple].edge_index = sar.pyg.edge_index(graph[triple])
    for n, kind in enumerate(KINDS):
        data[kind].num_nodes = graph.num_nodes(kind)
        data[kind].x = torch.full((graph.num_nodes(kind), IN), float(n))
    between, loops = data["author", "writes", "paper"].edge_index, data["paper", "cites", "paper"].edge_index
    said = []

    def change() -> None:
        loops[0] += 1

    for wrong in (
        change,
        data.to_homogeneous,
        lambda: _nn().GATConv((IN, IN), OUT)((data["author"].x, data["paper"].x), between),
        lambda: _nn().SAGEConv(IN, OUT)((torch.zeros(graph.num_nodes("author") + 1, IN), data["paper"].x), between),
        lambda: sar.pyg.edge_index(graph),
        lambda: sar.pyg.partition(data, 1, "nowhere"),
    ):
        said.append(refusal(wrong))
    return said
