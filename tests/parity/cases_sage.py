"""What runs on the workers to test GraphSAGE's mean in one piece."""

from __future__ import annotations

import gc
from collections.abc import Collection
from typing import Any

import dgl
import numpy as np
import torch

import sar.nn
from sar.autograd.fused import scaled_product
from tests.parity.observed_models import fused
from tests.parity.one_piece import counted, gradients, loaded
from tests.support.worker import build


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
    unfused: Collection[int] = (),
) -> dict[str, Any]:
    """Result and all gradients of a layer of DGL or of ``sar.nn``, and whether it ran fused. ``unfused``: the ranks
    that switch that off."""
    layers = {"dgl": dgl.nn, "sar": sar.nn}[library]
    bias = "fc_self.bias" in state
    layer = loaded(layers.SAGEConv(x.shape[1], out_feats, "mean", bias=bias), x, state, frozen)
    seen = []
    if hooked == "hook":
        layer.fc_neigh.register_forward_hook(lambda *_: seen.append("hook"))
    elif hooked == "forward":
        plain = layer.fc_neigh.forward
        layer.fc_neigh.forward = lambda rows: seen.append("forward") or plain(rows)
    rows = torch.from_numpy(x.copy()).requires_grad_(needs)
    given = torch.stack([rows, rows], 2)[:, :, 0] if strided else rows
    graph = build(part)
    before = choices() if unfused else {}
    with fused(sar.rank() not in unfused), counted(scaled_product._SageMean) as pieces:
        out = layer(graph, given)
    if unfused:
        ran = {way: count - before[way] for way, count in choices().items()}
        assert ran == {"fused": len(pieces), "separate": 1 - len(pieces)}
    return {**gradients(layer, out, grad, rows), "pieces": len(pieces), "hooks": len(seen)}


def choices() -> dict[str, int]:
    """How many of the process's layers ran in which way; other cases may have left some."""
    gc.collect()
    found: dict[str, int] = sar.stats()["layers"].get("SAGEConv", {"fused": 0, "separate": 0})
    return found
