"""What runs on the workers to look at a run."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

import sar
import sar.function as fn
from tests.support.worker import build, settings, tensor


def traced(folder: str, part: dict[str, Any], x: np.ndarray, torch_ops: bool) -> dict[str, Any]:
    """The timeline of one aggregation, forward and backward, and how long the block took in microseconds."""
    import time

    graph = build(part)
    rows = tensor(x, True)
    assert rows is not None
    graph.srcdata["h"] = rows
    graph.update_all(fn.copy_u("h", "m"), fn.mean("m", "out"))  # the first time the workers agree on what travels
    begin = time.perf_counter()
    with sar.trace(os.path.join(folder, "run.json"), torch_ops=torch_ops), graph.local_scope():
        graph.srcdata["h"] = rows
        graph.update_all(fn.copy_u("h", "m"), fn.mean("m", "out"))
        (graph.dstdata["out"] * 2).sum().backward()
    took = time.perf_counter() - begin
    name = "run.json" if sar.world_size() == 1 else f"run.rank{sar.rank()}.json"
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return {"events": json.load(file)["traceEvents"], "microseconds": took * 1e6}


def trace_twice(folder: str) -> str:
    with sar.trace(os.path.join(folder, "a.json"), torch_ops=False):
        try:
            with sar.trace(os.path.join(folder, "b.json"), torch_ops=False):
                return "no error"
        except Exception as error:
            return str(error)


def traced_attention(folder: str, part: dict[str, Any]) -> list[dict[str, Any]]:
    """The timeline of a layer of attention, forward and backward; readers of sources compute their gradients."""
    import torch

    graph = build(part)
    n = graph.num_nodes()
    z, left, right = (torch.randn(n, 4, width, requires_grad=True) for width in (16, 1, 1))
    trace = sar.trace(os.path.join(folder, "attention.json"), torch_ops=False)
    with settings(exchange="pull"), trace, graph.local_scope():
        graph.srcdata.update({"z": z, "left": left})
        graph.dstdata["right"] = right
        graph.apply_edges(fn.u_add_v("left", "right", "e"))
        graph.edata["a"] = sar.edge_softmax(graph, torch.nn.functional.leaky_relu(graph.edata["e"], 0.2))
        graph.update_all(fn.u_mul_e("z", "a", "m"), fn.sum("m", "out"))
        graph.dstdata["out"].square().sum().backward()
    with open(os.path.join(folder, f"attention.rank{sar.rank()}.json"), encoding="utf-8") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events
