"""What runs on the workers to test GAT's layer in one piece."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch

import sar.nn
from sar.autograd.fused import gat
from tests.parity.observed_models import fused
from tests.parity.one_piece import counted, gradients, loaded
from tests.support.worker import build


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
    """Result and all gradients of a layer; ``apart``: not fused; ``after``: what follows it; ``turned``:
    what its dropout is made to be."""
    layers = {"dgl": dgl.nn, "sar": sar.nn}[library]
    layer = loaded(layers.GATConv(x.shape[1], **options, allow_zero_in_degree=True), x, state, frozen)
    if turned == "on in evaluation":
        layer.eval()
        layer.attn_drop.train()
    elif turned == "off in training":
        layer.attn_drop.eval()
    elif turned == "another module":
        layer.attn_drop = torch.nn.Identity()
    rows = torch.from_numpy(x.copy()).requires_grad_(needs)
    graph = build(part)
    torch.manual_seed(11)
    with fused(not apart), counted(gat._Scores) as pieces:
        out = layer(graph, rows)
    if after == "in place":
        out = torch.nn.functional.elu_(out)
    elif after:
        out = torch.nn.functional.elu(out)
    return {**gradients(layer, out, grad, rows), "pieces": len(pieces)}
