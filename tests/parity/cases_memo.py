"""What runs on the workers to test memoized aggregates."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch

import sar
from sar.autograd import memo
from tests.support.worker import build


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
        sar.clear_memoized()
    return {"outputs": outputs, "sent": sent, "grads": grads}


def given_again(part: dict[str, Any], x: np.ndarray, changes: bool) -> dict[str, Any]:
    """The mean of features in six steps, before the third and fifth of which they change in place where ``changes`` and
    are memoized again by all; and the bytes of rows sent in each."""
    graph = build(part)
    features = torch.from_numpy(x.copy())
    outputs, sent = [], []
    try:
        for step in range(6):
            if step in (2, 4) and changes:
                features.add_(1)
            if step in (0, 2, 4):
                sar.memoize(features)
            before = _sent()
            with graph.local_scope():
                graph.srcdata["x"] = features
                graph.update_all(sar.function.copy_u("x", "m"), sar.function.mean("m", "y"))
                outputs.append(graph.dstdata["y"].numpy().copy())
            sent.append(_sent() - before)
    finally:
        sar.clear_memoized()
    return {"outputs": outputs, "sent": sent}


def kept(part: dict[str, Any], x: np.ndarray, changes: bool, again: bool) -> dict[str, Any]:
    """Sums and means of two memoized tensors in five steps, before each of which the first one changes in place where
    ``changes``, and is memoized again by all if ``again``. What each step gives, the results kept after it, and the
    bytes of rows sent."""
    graph = build(part)
    moving, still = torch.from_numpy(x.copy()), torch.from_numpy(x.copy())
    for tensor in (moving, still):
        sar.memoize(tensor)
    outputs, count, sent = [], [], []
    try:
        for step in range(5):
            if step and changes:
                moving.add_(1)
            if step and again:
                sar.memoize(moving)
            before = _sent()
            found = []
            for tensor, reduce in ((moving, "mean"), (moving, "sum"), (still, "mean")):
                with graph.local_scope():
                    graph.srcdata["x"] = tensor
                    graph.update_all(sar.function.copy_u("x", "m"), getattr(sar.function, reduce)("m", "y"))
                    found.append(graph.dstdata["y"].numpy().copy())
            outputs.append(found)
            count.append(sum(len(one.results) for one in memo._memo.results.values()))
            sent.append(_sent() - before)
    finally:
        sar.clear_memoized()
    return {"outputs": outputs, "count": count, "sent": sent, "left": len(memo._memo.results)}


def refused() -> None:
    sar.memoize(torch.ones(3, 2, requires_grad=True))
