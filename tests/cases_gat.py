"""What runs on the workers to test GAT's layer in one piece."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch

import sar
import sar.nn
from cases import build
from sar.fused import gat


def step(
    part: dict[str, Any],
    library: str,
    options: dict[str, Any],
    x: np.ndarray,
    grad: np.ndarray,
    state: dict[str, np.ndarray],
    needs: bool,
    apart: bool = False,
    frozen: tuple[str, ...] = (),
    after: str = "",
    turned: str = "",
) -> dict[str, Any]:
    """Result and all gradients of a layer; ``apart``: as the layer's own steps; ``after``: what follows it; ``turned``:
    what its dropout is made to be."""
    layers = {"dgl": dgl.nn, "sar": sar.nn}[library]
    layer = layers.GATConv(x.shape[1], **options, allow_zero_in_degree=True).to(torch.from_numpy(x).dtype)
    layer.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name not in frozen)
    if apart:
        layer.fc.register_forward_hook(lambda *_: None)
    if turned == "on in evaluation":
        layer.eval()
        layer.attn_drop.train()
    elif turned == "off in training":
        layer.attn_drop.eval()
    elif turned == "another module":
        layer.attn_drop = torch.nn.Identity()
    rows = torch.from_numpy(x.copy()).requires_grad_(needs)
    graph = build(part)
    original, pieces = gat._Attend.forward, []

    def counted(*args: Any) -> torch.Tensor:
        pieces.append(1)
        return original(*args)

    gat._Attend.forward = staticmethod(counted)
    torch.manual_seed(11)
    try:
        out = layer(graph, rows)
    finally:
        gat._Attend.forward = staticmethod(original)
    if after == "in place":
        out = torch.nn.functional.elu_(out)
    elif after:
        out = torch.nn.functional.elu(out)
    if out.requires_grad:
        out.backward(torch.from_numpy(grad))
    sar.gather_grads(layer)
    found = {
        "out": out.detach().numpy(),
        "x": None if rows.grad is None else rows.grad.numpy(),
        "pieces": len(pieces),
        "needs": out.requires_grad,
    }
    for name, parameter in layer.named_parameters():
        found[name] = None if parameter.grad is None else parameter.grad.numpy()
    return found
