"""What runs on the workers to test the window."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from sar._engine import session as _session
from tests.support.worker import build, numpy, tensor

MIB = 1 << 20


def too_small(part: dict[str, Any], u: np.ndarray) -> tuple[str, int]:
    """What a window that is too small for anything is refused with."""
    graph = build(part)
    sar.Config.window_bytes = 64
    try:
        aggregate(graph, u)
    except sar.BudgetError as error:
        return str(error), error.minimum
    finally:
        sar.Config.window_bytes = None
        _session.current().follow_config()
    raise AssertionError("a window of 64 bytes was taken")


def windows(part: dict[str, Any], u: np.ndarray, sizes: list[int]) -> list[dict[str, Any]]:
    """Aggregation and attention, forward and backward, through one window after the other, and what each held."""
    graph = build(part)
    found = []
    try:
        for size in sizes:
            sar.Config.window_bytes = size
            results = {**aggregate(graph, u), **attention(graph, u)}
            window = sar.stats()["window"]
            assert sar.memory_stats()["window"] == {"live": window["live"], "peak": window["peak"]}
            found.append({**results, "window": window})
            sar.comm.barrier()
    finally:
        sar.Config.window_bytes = None
        _session.current().follow_config()
    return found


def aggregate(graph: Any, u: np.ndarray) -> dict[str, Any]:
    x = tensor(u, True)
    assert x is not None
    with graph.local_scope():
        graph.srcdata["h"] = x
        graph.update_all(sar.function.copy_u("h", "m"), sar.function.sum("m", "out"))
        out = graph.dstdata["out"]
    out.backward(out.detach())
    return {"sum": numpy(out), "sum_grad": numpy(x.grad)}


def attention(graph: Any, u: np.ndarray) -> dict[str, Any]:
    x = tensor(u, True)
    assert x is not None
    with graph.local_scope():
        score = x.mean(1, keepdim=True)
        graph.srcdata["h"], graph.srcdata["s"], graph.dstdata["s"] = x, score, -score
        graph.apply_edges(sar.function.u_add_v("s", "s", "score"))
        scores = torch.nn.functional.leaky_relu(graph.edata.pop("score"))
        graph.edata["a"] = sar.edge_softmax(graph, scores)
        graph.update_all(sar.function.u_mul_e("h", "a", "m"), sar.function.sum("m", "out"))
        out = graph.dstdata["out"]
    out.backward(out.detach())
    return {"attention": numpy(out), "attention_grad": numpy(x.grad)}


def by_itself(part: dict[str, Any], larger: dict[str, Any]) -> list[dict[str, int]]:
    """The window that the engine sizes: with a small graph, with a larger one, and after one was named."""
    found = []
    for given in (part, larger):
        build(given)
        found.append(sar.stats()["window"])
        sar.comm.barrier()
    sar.Config.window_bytes = 3 * MIB
    _session.current().follow_config()
    found.append(sar.stats()["window"])
    sar.comm.barrier()
    sar.Config.window_bytes = None
    _session.current().follow_config()
    found.append(sar.stats()["window"])
    return found
