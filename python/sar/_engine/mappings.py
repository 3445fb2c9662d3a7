"""Features that stay in their files: tensors whose memory is a mapping of a partition's file."""

from __future__ import annotations

import contextlib
import ctypes as ct
import weakref
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Dict, Iterator, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import library

_live: Dict[int, Tuple[int, int]] = {}
"""By handle of a map: where its memory begins, and one past its last byte."""


_WINDOW_MARGIN = 8192
"""What ``sar_map_read`` takes beside the bytes that it reads."""


def map_feature(partition: int, edge: bool, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A feature as a tensor over its file. The tensor holds the map; it may outlive the partition. Writing to it makes
    private copies of the pages that are written to.

    :raises sar.FormatError: the file is damaged, by its checksums
    :raises OSError: it cannot be mapped
    """
    if not prod(shape):
        return torch.empty(tuple(shape), dtype=dtype)
    address, handle = library.call("sar_partition_map", partition, edge, name)
    size = prod(shape) * dtype.itemsize
    memory = (ct.c_uint8 * size).from_address(address)
    _live[handle] = (address, address + size)
    weakref.finalize(memory, _close, handle).atexit = False
    return torch.frombuffer(memory, dtype=dtype).view(tuple(shape))


def _close(handle: int) -> None:
    _live.pop(handle, None)
    with contextlib.suppress(Exception):  # in a forked child: the memory goes with the process
        library.call("sar_map_close", handle)


def in_turn(parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """Contiguous parts of a tensor, one after the other. Those of a mapped feature that are not in memory are read from
    the disk into a buffer, each while the caller computes with the one before; it must not keep them.

    :raises sar.FormatError: the file became shorter than the feature
    """
    found = map_of(parts[0])
    if found is None:
        yield from parts
        return
    handle, begin = found
    size = max(part.nbytes for part in parts) + _WINDOW_MARGIN
    windows = [torch.empty(size, dtype=torch.uint8) for _ in parts[:2]]

    def read(k: int) -> Tensor:
        part, window = parts[k], windows[k % 2]
        at = library.call("sar_map_read", handle, part.data_ptr() - begin, part.nbytes, window)
        return part if at < 0 else window[at : at + part.nbytes].view(part.dtype).view(part.shape)

    with ThreadPoolExecutor(1, "sar-features") as reader:
        coming = reader.submit(read, 0)
        for k in range(1, len(parts) + 1):
            part = coming.result()
            if k < len(parts):
                coming = reader.submit(read, k)
            yield part


def map_of(part: Tensor) -> Optional[Tuple[int, int]]:
    """The map that a tensor lies in, and where its memory begins."""
    at = part.data_ptr()
    for handle, (begin, end) in list(_live.items()):  # another thread may let go of one
        if begin <= at < end:
            return handle, begin
    return None
