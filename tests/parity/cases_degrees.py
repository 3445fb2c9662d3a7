"""What runs on the workers to test degrees, and layers on nodes without in-edges."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any, Callable

import numpy as np
import torch

import sar
import sar.nn
from sar.graph.degrees import has_zero_in_degree
from tests.support.worker import build, data_of, numpy, refusal

EXPRESSIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "any_zero": lambda d: (d == 0).any(),
    "torch_any": lambda d: torch.any(d.eq(0)),
    "contains": lambda d: torch.tensor(0 in d),
    "zeros": lambda d: (d == 0).sum(),
    "all": lambda d: d.bool().all(),
    "least": lambda d: d.min() if len(d) else d.sum(),
    "inverse": lambda d: 1 / d,
    "quotient": lambda d: torch.ones(len(d), 2) / d.unsqueeze(-1),
    "reciprocal": lambda d: d.float().reciprocal(),
    "rsqrt": lambda d: d.double().rsqrt(),
    "power": lambda d: d.float().pow(-0.5),
    "clamped": lambda d: d.float().clamp(min=1).pow(-0.5),
    "where": lambda d: torch.where(d == 0, torch.ones_like(d), d),
    "masked": lambda d: d.masked_fill(d == 0, 7),
    "some": lambda d: (d[:2] == 0).any(),
    "more": lambda d: d + 1,
    "copies": lambda d: (copy.deepcopy(d) == 0) & (pickle.loads(pickle.dumps(d)) == 0),
}


def expressions(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Of in-degrees and of out-degrees."""
    graph: Any = build(part)
    found = []
    for degrees in (graph.in_degrees(), graph.out_degrees(), graph["_E"].in_degrees()):
        assert type(degrees) is torch.Tensor and degrees.dtype == torch.int64
        found.append({name: numpy(function(degrees)) for name, function in EXPRESSIONS.items()})
    if graph.num_nodes():
        assert graph.in_degrees(0) == int(graph.in_degrees()[0]) and type(graph.out_degrees(0)) is int
    return found


# ---- layers of DGL -----------------------------------------------------------

WIDTH = 4
REFUSING: dict[str, dict[str, Any]] = {
    "AGNNConv": {},
    "DotGatConv": {"in_feats": WIDTH, "out_feats": 2, "num_heads": 2},
    "EGATConv": {"in_node_feats": WIDTH, "in_edge_feats": 1, "out_node_feats": 2, "out_edge_feats": 1, "num_heads": 2},
    "EdgeConv": {"in_feat": WIDTH, "out_feat": 3},
    "EdgeGATConv": {"in_feats": WIDTH, "edge_feats": 1, "out_feats": 2, "num_heads": 2},
    "GATConv": {"in_feats": WIDTH, "out_feats": 2, "num_heads": 2},
    "GATv2Conv": {"in_feats": WIDTH, "out_feats": 2, "num_heads": 2},
    "GCN2Conv": {"in_feats": WIDTH, "layer": 1},
    "GMMConv": {"in_feats": WIDTH, "out_feats": 2, "dim": 1, "n_kernels": 2, "aggregator_type": "sum"},
    "GraphConv": {"in_feats": WIDTH, "out_feats": 3},
    "SGConv": {"in_feats": WIDTH, "out_feats": 3, "k": 2},
}
"""Layers of DGL that refuse nodes without in-edges, with what they are made of."""


def call(layer: Any, graph: Any, x: torch.Tensor) -> torch.Tensor:
    """A layer's result, whatever it takes."""
    name = type(layer).__name__
    of_edges = torch.ones(graph.num_edges(), 1)
    more = {"GCN2Conv": [x], "EGATConv": [of_edges], "EdgeGATConv": [of_edges], "GMMConv": [of_edges]}.get(name, [])
    out = layer(graph, x, *more)
    return out[0] if isinstance(out, tuple) else out


def refusing_layers(part: dict[str, Any], x: np.ndarray) -> dict[str, Any]:
    """Each layer as it is made, the same told to allow such nodes, and what it is afterwards."""
    import dgl.nn

    graph = build(part)
    found: dict[str, Any] = {}
    for name, options in REFUSING.items():
        torch.manual_seed(3)
        layer = getattr(dgl.nn, name)(**options).eval()
        asked: list[bool] = []
        hook = functools.partial(ask, asked)
        layer.register_forward_pre_hook(hook)
        layer.register_forward_hook(hook)
        out = call(layer, graph, torch.from_numpy(x))
        refuses = getattr(layer, "_allow_zero_in_degree", None)
        state = {k: v.numpy() for k, v in layer.state_dict().items()}
        found[name] = {"out": numpy(out), "asked": asked, "allows": refuses, "state": state}
    return found


def ask(answers: list[bool], module: Any, given: Any, result: Any = None) -> None:
    """A hook that looks at degrees."""
    answers.append(bool((given[0].in_degrees() == 0).any()))


class Own(torch.nn.Module):
    """A layer of a script, with a check of its own."""

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        import dgl.nn

        assert bool((graph.in_degrees() == 0).any()) is bool(0 in graph.in_degrees())
        out: torch.Tensor = dgl.nn.GraphConv(x.shape[1], 2)(graph, x)
        if (graph.in_degrees() == 0).any():
            raise ValueError("my own check")
        return out


def own_check(part: dict[str, Any], x: np.ndarray) -> str:
    graph = build(part)
    return refusal(lambda: Own()(graph, torch.from_numpy(x)))


# ---- agreement ---------------------------------------------------------------


def agreed(part: dict[str, Any], x: np.ndarray, last: int) -> dict[str, list[Any]]:
    """Of graphs of several kinds: whether a node here has no in-edge, whether one anywhere has none, and what layers of
    ``sar.nn`` say of it.

    :param last: the node that ``remove_edges`` leaves without in-edges
    """
    graph: Any = sar.construct_full_graph(data_of(part))
    start = part["start"][sar.rank()]
    (block,) = sar.construct_mfgs(data_of(part), torch.arange(start, part["start"][sar.rank() + 1]), 1)
    looped = graph.remove_self_loop().add_self_loop()
    cut = graph.clone()
    cut.remove_edges(graph.edges()[1] + start == last)
    graphs = {
        "full": graph,
        "slice": graph["_E"],
        "clone": graph.clone(),
        "block": block,
        "loops": looped,
        "no_loops": looped.remove_self_loop(),
        "cut": cut,
    }
    found: dict[str, list[Any]] = {}
    for name, g in graphs.items():
        feature = torch.from_numpy(x)[block.input_nodes if name == "block" else slice(None)]
        said: list[Any] = [bool((g.in_degrees() == 0).any()), has_zero_in_degree(g)]
        for layer in (sar.nn.GraphConv(WIDTH, 2), sar.nn.GATConv(WIDTH, 2, 1), sar.nn.GATv2Conv(WIDTH, 2, 1)):
            try:
                layer(g, feature)
                said.append("runs")
            except ValueError as error:
                said.append(str(error).split(":")[0])
        found[name] = said
    return found


# ---- MoNet -----------------------------------------------------------------------


class MoNet(torch.nn.Module):
    """As DGL's example has it: coordinates of an edge are the degrees of its ends."""

    def __init__(self, graph: Any) -> None:
        import dgl.nn

        super().__init__()
        self.graph = graph
        widths = [WIDTH, 5, 3]
        self.layers = torch.nn.ModuleList(dgl.nn.GMMConv(a, b, 2, 3) for a, b in zip(widths, widths[1:]))
        self.projections = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()) for _ in self.layers
        )

    def forward(self, x: torch.Tensor, pseudo: torch.Tensor) -> torch.Tensor:
        for layer, project in zip(self.layers, self.projections):
            x = layer(self.graph, x, project(pseudo))
        return x


def monet(x: np.ndarray, nodes: int, part: dict[str, Any] | None = None, whole: Any = None) -> dict[str, Any]:
    """Losses, results and gradients of three steps in double precision; on a worker, its share."""
    import dgl

    graph: Any = build(part) if part is not None else dgl.graph(whole, num_nodes=nodes)
    graph = dgl.add_self_loop(dgl.remove_self_loop(graph))
    us, vs = graph.edges(order="eid")
    at_source, at_target = (1 / torch.sqrt(graph.in_degrees(end).double()) for end in (us, vs))
    pseudo = torch.cat([at_source.unsqueeze(1), at_target.unsqueeze(1)], dim=1)
    torch.manual_seed(7)
    model = MoNet(graph).double()
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(3):
        leaf = torch.from_numpy(x.copy()).requires_grad_()
        out = model(leaf, pseudo)
        loss = out.square().sum() / nodes
        optimizer.zero_grad()
        loss.backward()
        if part is not None:
            sar.gather_grads(model)
        optimizer.step()
        losses.append(loss.detach())
    found = {"losses": torch.stack(losses), "out": out, "x": leaf.grad, "out_degrees": graph.out_degrees(us)}
    found["parameters"] = torch.cat([p.grad.flatten() for p in model.parameters()])
    return numpy(found)


def halo_rows(part: dict[str, Any]) -> list[str]:
    """What is said where a row of another worker is read as one of this worker's."""
    graph: Any = build(part)
    us, rows = graph.edges()[0], torch.ones(graph.num_nodes(), 2)
    said = []
    for wrong in (
        lambda: rows[us],
        lambda: rows.index_select(0, us),
        lambda: torch.nn.functional.embedding(us, rows),
        lambda: torch.gather(rows[:, 0], 0, us),
        lambda: graph.in_degrees(us[:]),
        lambda: graph.out_degrees(graph.num_nodes()),
    ):
        said.append(refusal(wrong))
    return said
