"""What runs on the workers to test memoized aggregates."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch

import sar
from cases import build


def _sent() -> int:
    return sum(link["sent_pulled"] for link in sar.stats()["links"])


def steps(part: dict[str, Any], x: np.ndarray, changes: bool, layer: str) -> dict[str, Any]:
    """Outputs of a layer on constant features in five steps, and the bytes of rows sent in each.

    The output is overwritten after each step. Before the fourth step the features change in place where ``changes``.
    """
    graph = build(part)
    features = torch.from_numpy(x.copy())
    torch.manual_seed(3)
    width = x.shape[1]
    made: Any = dgl.nn.SAGEConv(width, 7, "mean")
    if layer == "gin":
        torch.manual_seed(3)
        made = dgl.nn.GINConv(torch.nn.Linear(width, 7), "sum")
    made = made.to(features.dtype)
    sar.memoize(features)
    outputs, sent, grads = [], [], []
    try:
        for step in range(5):
            if step == 3 and changes:
                features.mul_(2)
            before = _sent()
            made.zero_grad()
            if step == 2:
                with torch.inference_mode():
                    out = made(graph, features)
            else:
                out = made(graph, features)
                out.square().sum().backward()
                sar.gather_grads(made)
            outputs.append(out.detach().numpy().copy())
            sent.append(_sent() - before)
            grads.append([None if p.grad is None else p.grad.numpy().copy() for p in made.parameters()])
            out.detach().fill_(-1)
    finally:
        sar.forget()
    return {"outputs": outputs, "sent": sent, "grads": grads}


def refused() -> None:
    sar.memoize(torch.ones(3, 2, requires_grad=True))
