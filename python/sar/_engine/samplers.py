"""Typed calls into the engine: neighbourhood sampling (``sar_sampler_*`` and ``sar_batch_*``)."""

from __future__ import annotations

import ctypes as ct
from typing import Sequence, Tuple

from torch import Tensor

from . import library
from .signatures import SizedStruct

INPUT, OUTPUT, EDGE, WEIGHT = 0, 1, 2, 3
"""What a column is for."""

NODES, INDPTR, INDICES, EDGE_IDS, DATA, BATCH_INPUT, BATCH_OUTPUT = range(7)
"""Arrays of a batch."""


class SampleConfig(SizedStruct):
    """``sar_sample_config``."""

    _fields_ = [
        ("size", ct.c_size_t),
        ("fanouts", ct.c_void_p),
        ("replace", ct.c_int32),
        ("edge_ids", ct.c_int32),
        ("cache_bytes", ct.c_int64),
    ]


def sampler_create(graph: int, fanouts: Tensor, replace: bool, edge_ids: bool, cache_bytes: int) -> int:
    """``fanouts``: int64 ``[layers, relations]``."""
    view = library.tensor(fanouts)
    config = SampleConfig(ct.addressof(view), replace, edge_ids, cache_bytes)
    return library.made("sar_sampler_create", graph, config)


def sampler_column(sampler: int, what: int, kind: int, rows: Tensor) -> None:
    """The memory of ``rows`` must last until :func:`sampler_free` returns."""
    library.call("sar_sampler_column", sampler, what, kind, rows)


def sampler_submit(sampler: int, seeds: Sequence[Tensor], key: int) -> int:
    """``seeds``: own rows, int64, for each node type. Returns a batch."""
    return library.made("sar_sampler_submit", sampler, seeds, len(seeds), key)


def sampler_free(sampler: int) -> None:
    library.call("sar_sampler_free", sampler)


def batch_wait(batch: int) -> None:
    library.call("sar_batch_wait", batch)


def batch_array(batch: int, layer: int, what: int, kind: int, column: int = 0) -> Tuple[int, int, int]:
    """Address (0 where there is nothing), bytes, and of ``NODES`` the number of destination nodes."""
    data, size, num_dst = ct.c_void_p(), ct.c_int64(), ct.c_int64()
    library.call(
        "sar_batch_array",
        batch,
        layer,
        what,
        kind,
        column,
        ct.byref(data),
        ct.byref(size),
        ct.byref(num_dst),
    )
    return data.value or 0, size.value, num_dst.value


def batch_free(batch: int) -> None:
    library.call("sar_batch_free", batch)
