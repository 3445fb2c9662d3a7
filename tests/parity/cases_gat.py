"""What runs on the workers to test GAT's layer in one piece, also by blocks of columns."""

from __future__ import annotations

import copy
from typing import Any

import dgl
import numpy as np
import torch
import torch.nn.functional as F

import sar
import sar.nn
from sar.autograd.fused import gat, gat_columns
from tests.parity.cases_remat import Kept
from tests.parity.observed_models import fused
from tests.parity.one_piece import counted, gradients, loaded
from tests.support.worker import build, numpy

ACTIVATIONS: dict[str, Any] = {
    "none": None,
    "elu": F.elu,
    "in place": torch.nn.LeakyReLU(0.1, inplace=True),
    "of a row": torch.nn.Softmax(-1),
}


def step(
    part: dict[str, Any],
    library: str,
    options: dict[str, Any],
    activation: str,
    x: np.ndarray,
    grad: np.ndarray,
    state: dict[str, np.ndarray],
    needs: bool,
    apart: bool = False,
    frozen: tuple[str, ...] = (),
    after: str = "",
    turned: str = "",
    hook_on: int = -1,
    hooked: str = "fc",
    remat: bool = False,
) -> dict[str, Any]:
    """Result and all gradients of a layer; ``apart``: not fused; ``after``: what follows it; ``turned``:
    what its dropout is made to be; ``hook_on``: a rank with a hook on the submodule ``hooked``."""
    function, kinds = copy.deepcopy(ACTIVATIONS[activation]), {"dgl": dgl.nn, "sar": sar.nn}[library]
    layer = kinds.GATConv(x.shape[1], **options, activation=function, allow_zero_in_degree=True)
    if library == "dgl":  # what scripts call something of their own
        layer.merge, layer.memory_efficient = "mean", True
    loaded(layer, x, state, frozen)
    if turned == "on in evaluation":
        layer.eval()
        layer.attn_drop.train()
    elif turned == "off in training":
        layer.attn_drop.eval()
    elif turned == "another module":
        layer.attn_drop = torch.nn.Identity()
    if sar.rank() == hook_on:
        getattr(layer, hooked).register_forward_hook(lambda *_: None)
    if remat:
        sar.remat(layer)
    rows = torch.from_numpy(x.copy()).requires_grad_(needs)
    graph = build(part)
    torch.manual_seed(11)
    with counted(gat_columns._Attend if "memory_efficient" in options else gat._Scores) as pieces:
        with fused(not apart):
            out = layer(graph, rows)
        if after == "in place":
            out = F.elu_(out)
        elif after:
            out = F.elu(out)
        found = gradients(layer, out, grad, rows)
    return {**found, "pieces": len(pieces)}


def dropped(part: dict[str, Any], x: np.ndarray, grad: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """With dropout of input and attention: the layer, and each head by itself as a plain layer with the mask that this
    head has."""
    torch.manual_seed(seed)
    options = {"feat_drop": 0.3, "attn_drop": 0.4, "allow_zero_in_degree": True}
    layer = sar.nn.GATConv(x.shape[1], 20, 3, activation=F.elu, merge="flatten", memory_efficient=True, **options)
    layer = layer.double()
    heads = [sar.nn.GATConv(x.shape[1], 20, 1, activation=F.elu, merge="flatten", **options).double() for _ in range(3)]
    sar.sync_params(layer)
    for head, plain in enumerate(heads):
        at = slice(20 * head, 20 * head + 20)
        state = layer.state_dict()
        parts = {"fc.weight": state["fc.weight"][at], "bias": state["bias"][at]}
        parts.update({name: state[name][:, head : head + 1] for name in ("attn_l", "attn_r")})
        plain.load_state_dict(parts)
    graph, results = build(part), []
    rows = torch.from_numpy(x.copy()).requires_grad_()
    torch.manual_seed(seed)
    out = layer(graph, rows)
    results.append(gradients(layer, out, grad, rows))
    rows = torch.from_numpy(x.copy()).requires_grad_()
    torch.manual_seed(seed)
    fed = layer.feat_drop(rows)
    drawn = sar.distributed.agreement.agreed_seed()
    original = sar.autograd.fused.gat.agreed_seed
    made = []
    try:
        for head, plain in enumerate(heads):
            sar.autograd.fused.gat.agreed_seed = lambda head=head: drawn + head  # type: ignore[misc]
            plain.feat_drop = torch.nn.Identity()
            made.append(plain(graph, fed))
    finally:
        sar.autograd.fused.gat.agreed_seed = original  # type: ignore[misc]
    found = gradients(torch.nn.ModuleList(heads), torch.cat(made, 1), grad, rows)
    weights = [found[f"{head}.fc.weight"] for head in range(3)]
    results.append({**found, "fc.weight": np.concatenate(weights)})
    return results


def kept(part: dict[str, Any], x: np.ndarray, merge: str) -> dict[str, int]:
    """Bytes that a layer with an activation saves for backward."""
    graph, found = build(part), {}
    for efficient in (False, True):
        layer = sar.nn.GATConv(
            x.shape[1], 32, 4, activation=F.elu, allow_zero_in_degree=True, merge=merge, memory_efficient=efficient
        )
        noted = Kept(layer)
        rows = torch.from_numpy(x.copy()).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(noted.pack, noted.unpack):
            out = layer(graph, rows)
        out.sum().backward()
        found["efficient" if efficient else "plain"] = noted.bytes()
    return found


def without_gradients(part: dict[str, Any], x: np.ndarray) -> dict[str, Any]:
    """The result with and without gradients, and of a layer that computes all columns at once."""
    torch.manual_seed(3)
    layer = sar.nn.GATConv(x.shape[1], 40, 2, merge="mean", allow_zero_in_degree=True, memory_efficient=True)
    sar.sync_params(layer)
    graph, rows = build(part), torch.from_numpy(x.copy())
    with torch.no_grad():
        without = layer(graph, rows)
    choices = sar.stats()["layers"]["GATConv"]
    layer.memory_efficient = False
    return numpy({"with": layer(graph, rows), "without": without, "fused": choices["fused"]})
