"""Writes tensors as torch.distributed.checkpoint does: a file a rank, with what ``torch.save`` makes of each piece, and
``.metadata``. Importing torch.distributed.checkpoint takes half a second, so that this module is imported late."""

from __future__ import annotations

import os
import zlib
from typing import Any, BinaryIO, Dict, List, Optional, Sequence, cast

import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.storage import WriteResult

from .files import Stored
from .placement import Piece


def write_pieces(folder: str, rank: int, given: Sequence[Piece]) -> List[Stored]:
    """Writes a rank's file into a directory that exists, and syncs it."""
    name = f"__{rank}_0.distcp"
    found = []
    with open(os.path.join(folder, name), "wb") as file:
        for piece in given:
            begin, output = file.tell(), _Summed(file)
            torch.save(_alone(piece.values), cast(BinaryIO, output))
            rows = len(piece.values) if piece.first is not None else 1
            dtype = str(piece.values.dtype).replace("torch.", "")
            length = file.tell() - begin
            found.append(Stored(piece.name, piece.first, rows, piece.shape, dtype, name, begin, length, output.crc))
        file.flush()
        os.fsync(file.fileno())
    return found


class _Summed:
    """Keeps the CRC-32 of what is written to a file, so that it is not read again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.crc = file, 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _alone(values: Tensor) -> Tensor:
    """The tensor, or a copy where it is a part of a larger one, all of which ``torch.save`` would write."""
    return values if values.untyped_storage().nbytes() == values.nbytes else values.clone()


def _index(name: str, first: Optional[int], shape: Sequence[int]) -> Any:
    offsets = [] if first is None else [first] + [0] * (len(shape) - 1)
    return dcp_metadata.MetadataIndex(name, torch.Size(offsets))


def _chunk(first: Optional[int], rows: int, shape: Sequence[int]) -> Any:
    if first is None:
        return dcp_metadata.ChunkStorageMetadata(torch.Size([]), torch.Size([]))
    offsets = [first] + [0] * (len(shape) - 1)
    return dcp_metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size([rows, *shape[1:]]))


def write_metadata(folder: str, stored: Sequence[Stored]) -> None:
    """Writes what tools of torch.distributed.checkpoint read, so that they take the directory for one of their own."""
    tensors: Dict[str, Any] = {}
    results = []
    for one in stored:
        if one.name not in tensors:
            properties = dcp_metadata.TensorProperties(dtype=getattr(torch, one.dtype))
            tensors[one.name] = dcp_metadata.TensorStorageMetadata(properties, torch.Size(one.shape), [])
        tensors[one.name].chunks.append(_chunk(one.first, one.rows, one.shape))
        place = _StorageInfo(one.file, one.offset, one.length)
        results.append(WriteResult(_index(one.name, one.first, one.shape), one.length, place))
    known = dcp_metadata.Metadata(tensors, {name: (name,) for name in tensors})
    dcp.FileSystemWriter(folder).finish(known, [results])
