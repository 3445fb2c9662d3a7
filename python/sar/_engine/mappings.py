"""Features that stay in their files: tensors whose memory is a mapping of a partition's file."""

from __future__ import annotations

import contextlib
import ctypes as ct
import weakref
from math import prod
from typing import Dict, Sequence, Tuple

import torch
from torch import Tensor

from . import library

_live: Dict[int, Tuple[int, int]] = {}
"""By handle of a map: where its memory begins, and one past its last byte."""


def map_feature(partition: int, edge: bool, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A feature as a tensor over its file. The tensor holds the map; it may outlive the partition. Writing to it makes
    private copies of the pages that are written to.

    :raises sar.FormatError: the file is damaged, by its checksums
    :raises OSError: it cannot be mapped
    """
    if not prod(shape):
        return torch.empty(tuple(shape), dtype=dtype)
    address = ct.c_uint64()
    handle = library.made("sar_partition_map", partition, edge, name, ct.byref(address))
    size = prod(shape) * dtype.itemsize
    memory = (ct.c_uint8 * size).from_address(address.value)
    _live[handle] = (address.value, address.value + size)
    weakref.finalize(memory, _close, handle).atexit = False
    return torch.frombuffer(memory, dtype=dtype).view(tuple(shape))


def _close(handle: int) -> None:
    _live.pop(handle, None)
    with contextlib.suppress(Exception):  # in a forked child: the memory goes with the process
        library.call("sar_map_close", handle)


def will_read(rows: Tensor) -> None:
    """Says that a contiguous tensor is read next. Where its memory is a mapped feature, the system is asked to bring it
    in meanwhile; elsewhere nothing happens.

    :raises sar.FormatError: the file became shorter than the feature
    """
    at = rows.data_ptr()
    for handle, (begin, end) in list(_live.items()):  # another thread may let go of one
        if begin <= at < end:
            n = min(rows.numel() * rows.element_size(), end - at)
            library.call("sar_map_will_read", handle, at - begin, n)
            return
