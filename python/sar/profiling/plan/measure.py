"""Measures the rates of this machine."""

from __future__ import annotations

import time
from typing import Any, Callable

import torch

from sar import function as fn
from sar.data.partition import PartitionData
from sar.data.records import ShardEdgesAndFeatures
from sar.distributed import shutdown
from sar.distributed.initialize import initialize_comms
from sar.graph.construct import construct_full_graph

from .estimate import Rates

_SECONDS = 0.5
_NODES, _DEGREE, _WIDTH = 200_000, 8, 64


def measure() -> Rates:
    """The rates of this process: an aggregation over a random graph that no cache holds, and a product of matrices.

    :raises RuntimeError: sar is initialized already
    """
    initialize_comms(0, 1, "127.0.0.1", "sar")
    try:
        return Rates(_aggregation(), _product())
    finally:
        shutdown.shutdown()


def _aggregation() -> float:
    generator = torch.Generator().manual_seed(0)
    dst = torch.arange(_NODES).repeat_interleave(_DEGREE)
    src = torch.randint(0, _NODES, (len(dst),), generator=generator)
    data = PartitionData([ShardEdgesAndFeatures((src, dst), {})], [(0, _NODES)], {}, ["_N"], [("_N", "_E", "_N")], None)
    graph = construct_full_graph(data)
    graph.srcdata["h"] = torch.ones(_NODES, _WIDTH)

    def once() -> Any:
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))

    return len(dst) * _WIDTH / _best(once)


def _product() -> float:
    a, b = torch.ones(20_000, 256), torch.ones(256, 256)
    return a.numel() * 256 / _best(lambda: a.mm(b))


def _best(run: Callable[[], Any]) -> float:
    """Seconds of one call, the fastest of as many as there is time for."""
    run()
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best
