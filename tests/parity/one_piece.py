"""Layers that are computed in one piece, held against DGL's layer on the whole graph: what SAGE's and GAT's share."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch

import sar
from tests.support.graphs import Graph, close, make

# ---- on the workers ----------------------------------------------------------


@contextlib.contextmanager
def counted(function: Any) -> Iterator[list[int]]:
    """Notes every forward of an autograd function."""
    original, pieces = function.forward, []

    def noted(*args: Any) -> torch.Tensor:
        pieces.append(1)
        return original(*args)

    function.forward = staticmethod(noted)
    try:
        yield pieces
    finally:
        function.forward = staticmethod(original)


def loaded(layer: torch.nn.Module, x: np.ndarray, state: dict[str, np.ndarray], frozen: Collection[str]) -> Any:
    """The layer with the parameters given, in the dtype of x; those frozen want no gradients."""
    layer.to(torch.from_numpy(x).dtype).load_state_dict({name: torch.from_numpy(v) for name, v in state.items()})
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name not in frozen)
    return layer


def gradients(layer: torch.nn.Module, out: torch.Tensor, grad: np.ndarray, rows: torch.Tensor) -> dict[str, Any]:
    """Goes back, over all workers: the result, the gradients of rows and parameters."""
    if out.requires_grad:
        out.backward(torch.from_numpy(grad))
    sar.gather_grads(layer)
    found = {"out": out.detach().numpy(), "x": None if rows.grad is None else rows.grad.numpy()}
    found["needs"] = out.requires_grad
    for name, parameter in layer.named_parameters():
        found[name] = None if parameter.grad is None else parameter.grad.numpy()
    return found


# ---- on the whole graph ------------------------------------------------------


def drawn(
    kind: str, world: int, seed: int, width: int, shape: tuple[int, ...], dtype: str
) -> tuple[Graph, np.ndarray, np.ndarray]:
    """A graph, rows x of this width for its nodes, and gradients of this shape for what a layer makes of them."""
    graph, rng = make(kind, world, seed=seed), np.random.default_rng(seed + 1)
    x, grad = (rng.standard_normal((graph.num_nodes, *each)).astype(dtype) for each in ((width,), shape))
    return graph, x, grad


def oracle(layer: torch.nn.Module, graph: Graph, x: np.ndarray, grad: np.ndarray, elu: bool = False) -> dict[str, Any]:
    """DGL's layer on the whole graph: result, all gradients, and what it began with."""

    whole = graph.of_dgl()
    rows = torch.from_numpy(x.copy()).requires_grad_()
    out = layer(whole, rows)
    out = torch.nn.functional.elu(out) if elu else out
    out.backward(torch.from_numpy(grad))
    expected = {"out": out.detach().numpy(), "x": rows.grad.numpy(), "graph": graph}
    expected["state"] = {name: value.numpy() for name, value in layer.state_dict().items()}
    expected.update({name: p.grad.numpy() for name, p in layer.named_parameters()})
    return expected


def arguments(graph: Graph, x: np.ndarray, grad: np.ndarray, needs: Any) -> list[dict[str, Any]]:
    """What each worker gets. ``needs``: whether x needs a gradient, or on which ranks."""
    wanted = [needs if isinstance(needs, bool) else rank in needs for rank in range(graph.world)]
    return graph.shares(x=x, grad=grad, ranks={"needs": wanted})


def check(
    found: list[dict[str, Any]], expected: dict[str, Any], frozen: Collection[str] = (), loose: float = 1.0
) -> None:
    """Holds what the workers found against the whole graph; ``loose``: how much looser for parameters.

    x has a gradient on the ranks of ``expected["needs"]``, of which :func:`arguments` is told too, and on no other.
    """
    graph, needs = expected["graph"], expected["needs"]
    for rank, one in enumerate(found):
        close(one["out"], expected["out"][graph.rows(rank)], "out")
        if needs if isinstance(needs, bool) else rank in needs:
            assert one["x"] is not None, f"rank {rank} has no gradient of x"
            close(one["x"], expected["x"][graph.rows(rank)], "gradient of x")
        else:
            assert one["x"] is None, f"rank {rank} has a gradient of x that nobody needs"
        for name in expected["state"]:
            if name in frozen:
                assert one[name] is None, name
            else:
                close(one[name], expected[name], name, loose)
