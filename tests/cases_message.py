"""What runs on the workers to pass messages: built-in functions, Python functions, several relations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from cases import build, numpy, tensor


def filled(part: dict[str, Any], columns: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> tuple[Any, ...]:
    """A graph with columns of nodes and edges; floats are leaves that need gradients."""
    graph = build(part)
    nodes = {name: leaf(array) for name, array in columns.items()}
    edges = {name: leaf(array) for name, array in weights.items()}
    graph.ndata.update(nodes)
    graph.edata.update(edges)
    return graph, nodes, edges


def leaf(array: np.ndarray) -> torch.Tensor:
    made = tensor(array, array.dtype.kind == "f")
    assert made is not None
    return made


def gradients(leaves: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Gradients by name, zeros where there is none; and forgets them."""
    found = {k: numpy(torch.zeros_like(t) if t.grad is None else t.grad) for k, t in leaves.items() if t.requires_grad}
    for t in leaves.values():
        t.grad = None
    return found


def builtins(
    part: dict[str, Any],
    columns: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    calls: list[tuple[str, list[str], str | None]],
    upstream: list[np.ndarray],
) -> list[dict[str, Any]]:
    """Built-in messages with a reducer, or left on the edges: results, and gradients of all columns."""
    graph, nodes, edges = filled(part, columns, weights)
    results = []
    for (message, fields, reduce), grad in zip(calls, upstream):
        with graph.local_scope():
            send = getattr(sar.function, message)(*fields, "m")
            if reduce is None:
                graph.apply_edges(send)
                out = graph.edata["m"]
                out = out if isinstance(out, torch.Tensor) else out.materialize()
            else:
                graph.update_all(send, getattr(sar.function, reduce)("m", "out"))
                out = graph.dstdata["out"]
        out.backward(torch.from_numpy(grad))
        results.append({"out": numpy(out), "nodes": gradients(nodes), "edges": gradients(edges)})
    return results


def model(
    part: dict[str, Any],
    columns: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    name: str,
    upstream: np.ndarray,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A model of ``message_functions``: result, gradients of columns and, over all ranks, of parameters."""
    import message_functions

    saved = {key: getattr(sar.Config, key) for key in settings or {}}
    for key, value in (settings or {}).items():
        setattr(sar.Config, key, value)
    try:
        graph, nodes, edges = filled(part, columns, weights)
        torch.manual_seed(3)
        net = getattr(message_functions, name)(sar.function).to(torch.from_numpy(upstream).dtype)
        with graph.local_scope():
            out = net(graph)
        out.backward(torch.from_numpy(upstream))
        sar.gather_grads(net)
    finally:
        for key, value in saved.items():
            setattr(sar.Config, key, value)
    return {
        "out": numpy(out),
        "nodes": gradients(nodes),
        "edges": gradients(edges),
        "parameters": {k: numpy(p.grad) for k, p in net.named_parameters()},
    }


def several(
    part: dict[str, Any], columns: dict[str, np.ndarray], upstream: dict[str, dict[str, np.ndarray]], ways: list[str]
) -> dict[str, Any]:
    """multi_update_all in several ways: results, gradients of columns and of parameters, by type."""
    import hetero
    import message_functions
    from cases_blocks import data_of

    graph = sar.construct_full_graph(data_of(part))
    leaves = {kind: leaf(array) for kind, array in columns.items()}
    results = {}
    for way in ways:
        torch.manual_seed(3)
        net = message_functions.Several(sar.function, hetero.TRIPLES, way).double()
        with graph.local_scope():
            graph.ndata["h"] = dict(leaves)
            out = net(graph)
        sum((out[k] * torch.from_numpy(upstream[way][k])).sum() for k in out).backward()
        sar.gather_grads(net)
        results[way] = {
            "out": numpy(out),
            "columns": gradients(leaves),
            "parameters": {k: numpy(p.grad) for k, p in net.named_parameters()},
        }
    return results
