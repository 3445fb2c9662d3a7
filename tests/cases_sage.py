"""What runs on the workers to test GraphSAGE's mean in one piece."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch

import sar
import sar.nn
from cases import build
from sar.fused import sage


def step(
    part: dict[str, Any],
    library: str,
    out_feats: int,
    x: np.ndarray,
    grad: np.ndarray,
    state: dict[str, np.ndarray],
    needs: bool,
    frozen: tuple[str, ...] = (),
    hooked: str = "",
    strided: bool = False,
) -> dict[str, Any]:
    """Result and all gradients of a layer of DGL or of ``sar.nn``, and whether it ran in one piece."""
    layers = {"dgl": dgl.nn, "sar": sar.nn}[library]
    bias = "fc_self.bias" in state
    layer = layers.SAGEConv(x.shape[1], out_feats, "mean", bias=bias).to(torch.from_numpy(x).dtype)
    layer.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    seen = []
    if hooked == "hook":
        layer.fc_neigh.register_forward_hook(lambda *_: seen.append("hook"))
    elif hooked == "forward":
        plain = layer.fc_neigh.forward
        layer.fc_neigh.forward = lambda rows: seen.append("forward") or plain(rows)
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name not in frozen)
    rows = torch.from_numpy(x.copy()).requires_grad_(needs)
    given = torch.stack([rows, rows], 2)[:, :, 0] if strided else rows
    graph = build(part)
    original, pieces = sage._SageMean.forward, []

    def counted(*args: Any) -> torch.Tensor:
        pieces.append(1)
        return original(*args)

    sage._SageMean.forward = staticmethod(counted)
    try:
        out = layer(graph, given)
    finally:
        sage._SageMean.forward = staticmethod(original)
    if out.requires_grad:
        out.backward(torch.from_numpy(grad))
    sar.gather_grads(layer)
    found = {
        "out": out.detach().numpy(),
        "x": None if rows.grad is None else rows.grad.numpy(),
        "pieces": len(pieces),
        "hooks": len(seen),
        "needs": out.requires_grad,
    }
    for name, parameter in layer.named_parameters():
        found[name] = None if parameter.grad is None else parameter.grad.numpy()
    return found
