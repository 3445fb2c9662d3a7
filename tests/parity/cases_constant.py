"""What runs on the workers to test what prepared layers keep of constant rows; and what DGL and PyG alone do."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch
import torch_geometric
from torch import nn
from torch.utils.checkpoint import checkpoint

import sar
from sar.autograd.fused.prepared import constant_of
from tests.parity.cases_pyg import graph_index
from tests.support.worker import build

IN, BAG = 6, 64
"""Widths of dense rows, and of rows with few numbers other than zero."""
STEPS = 7
CHANGED = 4
"""The step before which rows change."""
INFERENCE = 1
"""The step that has no backward."""

LAYERS = {
    "sage": lambda width: dgl.nn.SAGEConv(width, 9, "mean"),
    "gcn": lambda width: dgl.nn.GraphConv(width, 9, allow_zero_in_degree=True),
    "gcn_left": lambda width: dgl.nn.GraphConv(width, 9, norm="left", bias=False, allow_zero_in_degree=True),
    "gat": lambda width: dgl.nn.GATConv(width, 3, 2, allow_zero_in_degree=True),
    "pyg_sage": lambda width: torch_geometric.nn.SAGEConv(width, 9),
    "pyg_gcn": lambda width: torch_geometric.nn.GCNConv(width, 9),
    "pyg_gat": lambda width: torch_geometric.nn.GATConv(width, 3, heads=2),
}


def rows(nodes: int, bag: bool) -> np.ndarray:
    random = np.random.default_rng(91)
    if not bag:
        return random.standard_normal((nodes, IN))
    found = np.zeros((nodes, BAG))
    found[np.arange(nodes), random.integers(0, BAG, nodes)] = random.integers(1, 3, nodes)
    return found


def made(name: str, width: int) -> nn.Module:
    torch.manual_seed(5)
    return LAYERS[name](width).double()


def step(layer: Any, x: torch.Tensor, graph: Any, name: str, inference: bool, again: bool = False) -> Any:
    """The result, and in training the layer, whose parameters have gradients. ``again``: it is computed again in
    backward."""
    layer.zero_grad()
    given = (x, graph) if name.startswith("pyg") else (graph, x)
    if inference:
        with torch.inference_mode():
            return layer(*given).numpy().copy(), None
    out = checkpoint(layer, *given, use_reentrant=False) if again else layer(*given)
    out.square().sum().backward()
    return (out.detach().float() if out.dtype == torch.bfloat16 else out.detach()).numpy().copy(), layer


def trained(part: dict[str, Any], x: np.ndarray, name: str, how: str, changes: bool, misses: bool) -> dict[str, Any]:
    """Results, gradients and bytes of rows sent, of steps with a prepared layer, and what it kept.

    :param how: rows change before a step: ``"counted"``, ``"uncounted"`` by torch; ``"new"``: they are another tensor
        in every step. ``"again"``: none of it, and the layer is computed again in backward
    :param changes: whether they do on this worker
    :param misses: whether this worker has to run the layer's steps from the second one on
    """
    graph = graph_index(part) if name.startswith("pyg") else build(part)
    x = torch.from_numpy(x.copy())
    layer = sar.prepare(made(name, x.shape[1]), graph)
    outputs, grads, sent, kept, few = [], [], [], [], []
    for number in range(STEPS):
        if changes and number == CHANGED and how == "counted":
            x.mul_(2)
        if changes and number == CHANGED and how == "uncounted":
            x.numpy()[:] *= 2
        if misses and number == 1:
            layer.register_forward_hook(lambda *_: None)
            for part_of_layer in layer.children():
                part_of_layer.register_forward_hook(lambda *_: None)
        before = sum(link["sent_pulled"] for link in sar.stats()["links"])
        given = x.clone() if changes and how == "new" else x
        out, in_training = step(layer, given, graph, name, number == INFERENCE, how == "again")
        if in_training:
            sar.gather_grads(layer)
            grads.append([p.grad.numpy().copy() for p in layer.parameters()])
        outputs.append(out)
        sent.append(sum(link["sent_pulled"] for link in sar.stats()["links"]) - before)
        constant = constant_of(layer)
        kept.append(constant is not None and constant._kept is not None)
        few.append(constant is not None and constant._sparse is not None)
    return {"outputs": outputs, "grads": grads, "sent": sent, "kept": kept, "few": few}


def under_autocast(part: dict[str, Any], x: np.ndarray, name: str) -> list[list[np.ndarray]]:
    """The result and the gradients of each of three steps in bfloat16, which change no parameter: nothing is kept in
    the first one."""
    graph = graph_index(part) if name.startswith("pyg") else build(part)
    rows_given = torch.from_numpy(x).float()
    layer = sar.prepare(made(name, x.shape[1]).float(), graph)
    found = []
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            out, _ = step(layer, rows_given, graph, name, inference=False)
        sar.gather_grads(layer)
        found.append([out, *(p.grad.numpy().copy() for p in layer.parameters())])
    return found


def alone(graph: Any, x: np.ndarray, after: np.ndarray, name: str) -> dict[str, Any]:
    """The same by the library on the whole graph; rows are ``after`` from the step on before which they change."""
    layer = made(name, x.shape[1])
    outputs, grads = [], []
    for number in range(STEPS):
        out, _ = step(layer, torch.from_numpy(x if number < CHANGED else after), graph, name, number == INFERENCE)
        outputs.append(out)
        if number != INFERENCE:
            grads.append([p.grad.numpy().copy() for p in layer.parameters()])
    return {"outputs": outputs, "grads": grads}
