"""Layers on workers against the same layer of DGL, with the same parameters, on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.parity import cases_nn
from tests.parity.cases_nn import make_layer
from tests.support.graphs import Graph, close
from tests.support.sessions import Workers
from tests.support.worker import default_dtype


def oracle(
    graph: Graph, name: str, options: dict[str, Any], x: np.ndarray, edge: dict[str, np.ndarray], call: dict[str, Any]
) -> dict[str, Any]:
    """DGL on the whole graph, with its own random parameters."""
    import dgl

    rng = np.random.default_rng(4)
    with default_dtype(torch.from_numpy(x).dtype):
        torch.manual_seed(5)
        model = make_layer(dgl.nn, name, options).to(torch.from_numpy(x).dtype)  # some parameters are float32 there
        for parameter in model.parameters():  # biases begin at zero, which hides mistakes
            torch.nn.init.normal_(parameter)
        whole = graph.of_dgl()
        feature = torch.from_numpy(x.copy()).requires_grad_()
        edges = {k: torch.from_numpy(e.copy()).requires_grad_(e.dtype == x.dtype) for k, e in edge.items()}
        out = model(whole, feature, **edges, **call)
        out, attention = out if isinstance(out, tuple) else (out, None)
        grad = rng.standard_normal(tuple(out.shape)).astype(x.dtype)
        attention_grad = None
        total = (out * torch.from_numpy(grad)).sum()
        if attention is not None:
            attention_grad = rng.standard_normal(tuple(attention.shape)).astype(x.dtype)
            total = total + (attention * torch.from_numpy(attention_grad)).sum()
        total.backward()
    assert feature.grad is not None
    return {
        "state": {k: v.numpy() for k, v in model.state_dict().items()},
        "out": out.detach().numpy(),
        "attention": None if attention is None else attention.detach().numpy(),
        "grad": grad,
        "attention_grad": attention_grad,
        "x": feature.grad.numpy(),
        "edge": {k: None if e.grad is None else e.grad.numpy() for k, e in edges.items()},
        "parameters": {k: None if p.grad is None else p.grad.numpy() for k, p in model.named_parameters()},
    }


def compare(
    workers: Workers,
    library: str,
    graph: Graph,
    name: str,
    options: dict[str, Any],
    x: np.ndarray,
    edge: dict[str, np.ndarray],
    call: dict[str, Any] | None = None,
    loose: float = 10.0,
) -> None:
    """A layer of "sar" or "dgl" on all ranks against DGL's on the whole graph: everything, element by element.

    :param edge: edge tensors by the argument's name
    :param call: further arguments of the call
    """
    call = call or {}
    expected = oracle(graph, name, options, x, edge, call)
    arguments = []
    for rank in range(graph.world):
        rows, edges = graph.rows(rank), graph.edges(rank)
        own = {"part": graph.part(rank), "x": x[rows], "grad": expected["grad"][rows]}
        own["edge"] = {k: e[edges] for k, e in edge.items()}
        if expected["attention"] is not None:
            own["attention_grad"] = expected["attention_grad"][edges]
        arguments.append(own)
    common = {"library": library, "name": name, "options": options, "call": call, "state": expected["state"]}
    results = workers.run(cases_nn.layer, arguments, dtype=str(x.dtype), **common)
    for rank, result in enumerate(results):
        rows, edges = graph.rows(rank), graph.edges(rank)
        close(result["out"], expected["out"][rows], f"{name}: output of rank {rank}", loose)
        close(result["x"], expected["x"][rows], f"{name}: gradient of the input, rank {rank}", loose)
        if expected["attention"] is not None:
            close(result["attention"], expected["attention"][edges], f"{name}: attention of rank {rank}", loose)
        for key, value in expected["edge"].items():
            if value is None:
                assert result["edge"][key] is None
            else:
                close(result["edge"][key], value[edges], f"{name}: gradient of {key}, rank {rank}", loose)
        for key, value in expected["parameters"].items():
            if value is None:
                assert result["parameters"][key] is None
            else:
                close(result["parameters"][key], value, f"{name}: gradient of {key}, rank {rank}", loose)
