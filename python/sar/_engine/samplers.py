"""Typed calls into the engine: neighbourhood sampling (``sar_sampler_*`` and ``sar_batch_*``)."""

from __future__ import annotations

import ctypes as ct
from typing import Sequence, Tuple

from torch import Tensor

from . import library
from .library import calls
from .signatures import TYPES

INPUT, OUTPUT, EDGE, WEIGHT = 0, 1, 2, 3
"""What a column is for."""

NODES, INDPTR, INDICES, EDGE_IDS, DATA, BATCH_INPUT, BATCH_OUTPUT = range(7)
"""Arrays of a batch."""

sampler_column = calls("sar_sampler_column")  # sampler, what for, type, rows, whose memory lasts until it is freed
sampler_free = calls("sar_sampler_free")
batch_wait = calls("sar_batch_wait")
batch_free = calls("sar_batch_free")


def sampler_create(graph: int, fanouts: Tensor, replace: bool, edge_ids: bool, cache_bytes: int) -> int:
    """``fanouts``: int64 ``[layers, relations]``."""
    config = TYPES["sar_sample_config"](ct.pointer(library.tensor(fanouts)), replace, edge_ids, cache_bytes)
    return library.call("sar_sampler_create", graph, config)


def sampler_submit(sampler: int, seeds: Sequence[Tensor], key: int) -> int:
    """``seeds``: own rows, int64, for each node type. Returns a batch."""
    return library.call("sar_sampler_submit", sampler, seeds, len(seeds), key)


def batch_array(batch: int, layer: int, what: int, kind: int, column: int = 0) -> Tuple[int, int, int]:
    """Address (0 where there is nothing), bytes, and of ``NODES`` the number of destination nodes."""
    data, size, num_dst = library.call("sar_batch_array", batch, layer, what, kind, column)
    return data or 0, size, num_dst
