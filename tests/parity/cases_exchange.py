"""What runs on the workers to test who computes gradients of edge expressions."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from dgl.nn import GATConv

import sar
from tests.parity import cases_expression
from tests.support.worker import build, numpy, settings, tensor

WAYS = ("sent_pulled", "sent_home", "sent_pushed")


def expression(exchange: str, **case: Any) -> dict[str, Any]:
    """An expression, forward and backward, under a setting of ``Config.exchange``."""
    with settings(exchange=exchange):
        return cases_expression.expression(**case)


def sent() -> np.ndarray:
    """Bytes sent so far, ``[peer, way]``."""
    total = np.zeros((sar.world_size(), len(WAYS)), np.int64)
    for link in sar.stats()["links"]:
        total[link["peer"]] += [link[way] for way in WAYS]
    return total


def attention(part: dict[str, Any], u: np.ndarray, exchanges: list[str]) -> list[dict[str, Any]]:
    """Additive attention on one graph under each setting: result, gradients, bytes of forward and backward by peer."""
    gc.collect()  # graphs of other cases, which may otherwise go while this one is measured
    graph = build(part)
    found = []
    try:
        for exchange in exchanges:
            sar.Config.exchange = exchange
            x, el, er = tensor(u, True), tensor(u[:, :1] * 0.5, True), tensor(u[:, 1:2] * 0.5, True)
            before = sent()
            with graph.local_scope():
                graph.srcdata.update({"x": x, "el": el})
                graph.dstdata["er"] = er
                graph.apply_edges(sar.function.u_add_v("el", "er", "e"))
                graph.edata["w"] = sar.edge_softmax(graph, F.leaky_relu(graph.edata.pop("e"), 0.2))
                graph.update_all(sar.function.u_mul_e("x", "w", "m"), sar.function.sum("m", "out"))
                out = graph.dstdata["out"]
            forward = sent()
            out.backward(torch.cos(out.detach()))
            found.append(
                {
                    "values": [numpy(out), *(numpy(t.grad) for t in (x, el, er))],
                    "forward": forward - before,
                    "backward": sent() - forward,
                    "structure": sar.memory_stats()["structure"]["live"],
                }
            )
    finally:
        sar.Config.exchange = "auto"
    return found


def layer(
    part: dict[str, Any], x: np.ndarray, grad: np.ndarray, exchange: str, heads: int, width: int
) -> dict[str, Any]:
    """DGL's GATConv, unedited."""
    with settings(exchange=exchange):
        torch.manual_seed(5)
        conv = GATConv(x.shape[1], width, heads, allow_zero_in_degree=True)
        rows = torch.from_numpy(x.copy()).requires_grad_()
        out = conv(build(part), rows)
        before = sent()
        out.backward(torch.from_numpy(grad))
        pushed = int((sent() - before)[:, 2].sum())
        sar.gather_grads(conv)
        return {
            "out": numpy(out),
            "x": numpy(rows.grad),
            "pushed": pushed,
            "grads": [numpy(p.grad) for p in conv.parameters()],
        }


def refused(part: dict[str, Any], u: np.ndarray) -> str:
    """What a setting that does not exist is refused with."""
    graph = build(part)
    sar.Config.exchange = "shove"
    try:
        graph.ndata["h"] = tensor(u)
        graph.update_all(sar.function.copy_u("h", "m"), sar.function.sum("m", "out"))
    except ValueError as error:
        return str(error)
    finally:
        sar.Config.exchange = "auto"
    raise AssertionError("a setting that does not exist was taken")


def differing(part: dict[str, Any], u: np.ndarray, exchange: str) -> None:
    """Each rank with a setting of its own, which is a mistake."""
    with settings(exchange=exchange):
        attention(part, u, [exchange])
