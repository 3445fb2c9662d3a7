"""What runs on the workers to see how much memory the structure of a graph takes, and when it goes back."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch

import sar
from tests.support.worker import build


def _live(purpose: str = "structure") -> int:
    return int(sar.memory_stats()[purpose]["live"])


def _resident() -> int:
    """Resident bytes of this process that belong to no file."""
    fields: dict[str, int] = {}
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("RssAnon", "RssShmem"):
                fields[name] = int(rest.split()[0]) << 10
    return sum(fields.values())


def _train(graph: Any, width: int) -> None:
    """A forward and a backward pass of what needs no edge data."""
    x = torch.ones(graph.num_src_nodes(), width, requires_grad=True)
    for reduce in (sar.function.sum, sar.function.mean):
        with graph.local_scope():
            graph.srcdata["h"] = x
            graph.update_all(sar.function.copy_u("h", "m"), reduce("m", "y"))
            graph.dstdata["y"].sum().backward()


def of_parts(path: str) -> dict[str, int]:
    """A graph from partition files: bytes after training, and after the graph is gone."""
    gc.collect()  # graphs of other cases, which may otherwise go while this one is measured
    data = sar.load_dgl_partition_data(path, sar.rank(), torch.device("cpu"))
    before, resident = _live(), _resident()
    graph = sar.construct_full_graph(data)
    del data
    _train(graph, 4)
    edges, live = int(graph.num_edges()), _live()
    held = _resident()
    del graph  # and nothing else: the memory goes back without a collection
    return {
        "edges": edges,
        "structure": live - before,
        "left": _live() - before,
        "resident": held - resident,
        "given_back": held - _resident(),
    }


def of_memory(part: dict[str, np.ndarray]) -> dict[str, Any]:
    """A graph from edges in memory: bytes before and after something asks for edge data, and at the end."""
    gc.collect()
    before = _live()
    graph = build(part)
    _train(graph, 4)
    edges, plain = int(graph.num_edges()), _live() - before
    with graph.local_scope():
        graph.srcdata["h"] = torch.ones(graph.num_src_nodes(), 1, dtype=torch.float64)
        weights = torch.arange(edges, dtype=torch.float64)
        graph.edata["w"] = weights
        graph.update_all(sar.function.u_mul_e("h", "w", "m"), sar.function.sum("m", "y"))
        sums = graph.dstdata["y"].reshape(-1).numpy().copy()
    ordered = _live() - before
    del graph
    return {"edges": edges, "plain": plain, "ordered": ordered, "left": _live() - before, "sums": sums}
