"""What sessions over several transports must compute alike."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

import sar
import sar.function as fn
from sar._engine import session as _session
from sar.distributed import network
from tests.support.worker import build

ROWS, EDGES, WIDTH = 300, 4000, 96


def results(seed: int) -> dict[str, Any]:
    """Sums of neighbours and attention with their gradients, over two windows, and collectives of several sizes."""
    rank, world = sar.rank(), sar.world_size()
    random = np.random.default_rng(seed + rank)
    dst = np.sort(random.integers(rank * ROWS, (rank + 1) * ROWS, EDGES))
    src = random.integers(0, world * ROWS, EDGES)
    graph = build({"start": np.arange(world + 1) * ROWS, "src": src, "dst": dst})
    torch.manual_seed(seed + rank)
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    out = {}
    try:
        for window in (None, 1 << 18):
            sar.Config.window_bytes = window
            total = step(graph, x)
            total.square().sum().backward()
            assert x.grad is not None
            out[f"sums, window {window}"] = total.detach().numpy().copy()
            out[f"gradient, window {window}"] = x.grad.numpy().copy()
            x.grad = None
    finally:
        sar.Config.window_bytes = None
        _session.current().follow_config()
    for size in (0, 1, 1000, 3 << 20):
        numbers = torch.randn(size)
        sar.comm.all_reduce(numbers, "sum")
        out[f"all_reduce of {size}"] = numbers.numpy()
    kinds = sorted({peer["transport"] for peer in sar.stats()["peers"] if peer["rank"] != rank})
    return {"numbers": out, "kinds": kinds}


def step(graph: Any, x: torch.Tensor) -> torch.Tensor:
    with graph.local_scope():
        graph.srcdata["h"] = x
        graph.update_all(fn.copy_u("h", "m"), fn.mean("m", "mean"))
        graph.update_all(fn.copy_u("h", "m"), fn.max("m", "max"))
        graph.srcdata["logits"], graph.dstdata["logits"] = x[:, :2], x[:, 2:4]
        graph.apply_edges(fn.u_add_v("logits", "logits", "e"))
        graph.edata["a"] = sar.edge_softmax(graph, torch.nn.functional.leaky_relu(graph.edata.pop("e"))).unsqueeze(-1)
        graph.srcdata["heads"] = x.view(len(x), 2, -1)
        graph.update_all(fn.u_mul_e("heads", "a", "m"), fn.sum("m", "attended"))
        found = graph.dstdata
        both: torch.Tensor = found["mean"] + found["max"] + found["attended"].flatten(1)
    return both


def joins_unlike() -> str:
    """What each rank is told where rank 0 alone uses torch, in a session that has a process group."""
    rank, world = sar.rank(), sar.world_size()
    port = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        port[0] = network.free_port()
    sar.comm.all_reduce(port, "sum")
    sar.comm.barrier()
    sar.comm.shutdown()
    changed = {"SAR_TRANSPORT": "torch" if rank == 0 else "tcp", "SAR_START_TIMEOUT": "3"}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        sar.initialize_comms(rank, world, "127.0.0.1", "gloo", master_port_number=int(port))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return "it has joined"
