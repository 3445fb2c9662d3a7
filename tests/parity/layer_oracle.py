"""Layers on workers against the same layer of DGL, with the same parameters, on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.parity import cases_layers
from tests.parity.cases_layers import call, draw, spec_of, tensors
from tests.support.graphs import Graph, close
from tests.support.sessions import Workers
from tests.support.worker import default_dtype


def side(name: str, position: int) -> str:
    """Whether an input has rows of nodes (n) or edges (e), or is a plain value."""
    given = spec_of(name).inputs[position]
    return "" if not isinstance(given, tuple) else "n" if given[0] in ("n", "nt") else "e"


def oracle(graph: Graph, name: str, inputs: list[Any], dtype: str, like: Any = None) -> dict[str, Any]:
    """DGL on the whole graph; with the parameters and gradients of ``like`` where given."""
    with default_dtype(getattr(torch, dtype)):
        model = cases_layers.make(name)
        if like is not None:
            model.load_state_dict({k: torch.from_numpy(v) for k, v in like["state"].items()})  # converts the dtype
        saved = {k: v.numpy().copy() for k, v in model.state_dict().items()}
        whole = graph.of_dgl()
        given = tensors([x.astype(dtype) if side(name, i) and x.dtype.kind == "f" else x for i, x in enumerate(inputs)])
        out = call(name, model, whole, given)
        rng = np.random.default_rng(12)
        drawn = [rng.standard_normal(tuple(o.shape)) for o in out]
        grads = [g.astype(dtype) for g in (like["grads"] if like is not None else drawn)]
        results = [o.detach().clone().numpy() for o in out]
        if any(o.requires_grad for o in out):
            torch.autograd.backward(out, [torch.from_numpy(g) for g in grads])
    return {
        "state": saved,
        "out": results,
        "grads": grads,
        "inputs": [x.grad.numpy() if isinstance(x, torch.Tensor) and x.grad is not None else None for x in given],
        "parameters": {k: None if p.grad is None else p.grad.numpy() for k, p in model.named_parameters()},
    }


def spread(
    workers: Workers,
    graph: Graph,
    name: str,
    dtype: str,
    inputs: list[Any],
    expected: dict[str, Any],
    library: str = "dgl",
) -> list[Any]:
    """The same on the workers, by the layer of "dgl" or "sar"."""

    def own(rank: int, value: Any, of: str) -> Any:
        if of == "g":  # all workers hold it, and a loss on it belongs on one of them
            return value if rank == 0 else np.zeros_like(value)
        return value[graph.rows(rank)] if of == "n" else value[graph.edges(rank)] if of == "e" else value

    ranks, outputs = range(graph.world), list(zip(expected["grads"], spec_of(name).outputs))
    values = {"inputs": [[own(rank, x, side(name, i)) for i, x in enumerate(inputs)] for rank in ranks]}
    values["grads"] = [[own(rank, g, of) for g, of in outputs] for rank in ranks]
    given = graph.shares(ranks=values)
    known = {"library": library, "name": name, "state": expected["state"], "dtype": dtype}
    return workers.run(cases_layers.layer, given, **known)


def compare(workers: Workers, graph: Graph, name: str, dtype: str, library: str = "dgl", loose: float = 10.0) -> None:
    """Outputs, and the gradients of all inputs and parameters, element by element."""
    inputs = draw(graph, name, dtype)
    expected = oracle(graph, name, inputs, dtype)
    results = spread(workers, graph, name, dtype, inputs, expected, library)
    for rank, result in enumerate(results):
        where = {"n": graph.rows(rank), "e": graph.edges(rank), "g": slice(None)}
        for value, whole, of in zip(result["out"], expected["out"], spec_of(name).outputs):
            close(value, whole[where[of]], f"output of rank {rank}", loose)
        for i, value in enumerate(expected["inputs"]):
            if value is not None:
                close(result["inputs"][i], value[where[side(name, i)]], f"gradient of input {i}, rank {rank}", loose)
        for key, value in expected["parameters"].items():
            if value is None:
                assert result["parameters"][key] is None, f"{key} has no gradient in DGL"
            else:
                close(result["parameters"][key], value, f"gradient of {key}, rank {rank}", loose)
