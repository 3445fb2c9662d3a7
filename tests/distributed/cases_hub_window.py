"""Worker cases of ``test_hub_window.py``; they run in every worker of a pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from tests.support.worker import build, numpy


def layer(name: str, width: int, dtype: str) -> torch.nn.Module:
    """A layer of DGL with the parameters that everybody makes."""
    import dgl.nn

    torch.manual_seed(9)
    made: torch.nn.Module
    if name == "attention":
        made = dgl.nn.GATConv(width, 16, 4, allow_zero_in_degree=True)
    else:
        made = dgl.nn.SAGEConv(width, 24, {"mean": "mean", "max": "pool"}[name])
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.to(getattr(torch, dtype))


def rows_of_hubs(
    part: dict[str, Any], name: str, x: np.ndarray, grad: np.ndarray, window: int, repeats: int
) -> list[dict[str, Any]]:
    """Output and all gradients of a layer, ``repeats`` times, with two threads and a window of so many bytes."""
    sar.set_num_threads(2)
    graph = None
    try:
        sar.Config.window_bytes = window
        graph = build(part)
        found = []
        for _ in range(repeats):
            model = layer(name, x.shape[1], str(x.dtype))
            rows = torch.from_numpy(x.copy()).requires_grad_()
            out = model(graph, rows)
            out.backward(torch.from_numpy(grad))
            sar.gather_grads(model)
            found.append({"out": out, "x": rows.grad, **{n: p.grad for n, p in model.named_parameters()}})
        limit = sar.stats()["window"]["limit"]
        return [{**numpy(one), "window": limit} for one in found]
    finally:
        sar.set_num_threads(1)
        sar.Config.window_bytes = None
        if graph is not None:  # back to the default window
            graph.srcdata["h"] = torch.zeros(x.shape[0], 1)
            graph.update_all(sar.function.copy_u("h", "m"), sar.function.sum("m", "h"))
