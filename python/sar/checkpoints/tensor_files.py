"""Writes tensors with torch.distributed.checkpoint. Importing it takes half a second, so that it is imported late."""

from __future__ import annotations

import os
import zlib
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import metadata as dcp_metadata, planner as dcp_planner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.storage import WriteResult

from .files import Stored
from .placement import Piece

_BLOCK = 4 << 20


def write_pieces(folder: str, rank: int, world: int, given: Sequence[Piece]) -> List[Stored]:
    """Writes a rank's file into a directory that exists, and syncs it."""
    writer = dcp.FileSystemWriter(folder)
    at = {_index(piece.name, piece.first, piece.shape): piece for piece in given}
    items = [_write_item(index, piece) for index, piece in at.items()]
    plan = writer.prepare_global_plan([dcp_planner.SavePlan(items)] * world)[rank]
    results = writer.write_data(plan, _Values(at)).wait()  # type: ignore[arg-type]
    found = []
    for result in results:
        piece, place = at[result.index], result.storage_data
        rows = len(piece.values) if piece.first is not None else 1
        crc = _checksum(os.path.join(folder, place.relative_path), place.offset, place.length)
        dtype = str(piece.values.dtype).replace("torch.", "")
        found.append(
            Stored(
                piece.name, piece.first, rows, piece.shape, dtype, place.relative_path, place.offset, place.length, crc
            )
        )
    return found


class _Values:
    """Gives torch's writer the values of its items."""

    def __init__(self, pieces: Dict[Any, Piece]) -> None:
        self._pieces = pieces

    def resolve_data(self, item: Any) -> Tensor:
        return self._pieces[item.index].values


def _index(name: str, first: Optional[int], shape: Sequence[int]) -> Any:
    offsets = [] if first is None else [first] + [0] * (len(shape) - 1)
    return dcp_metadata.MetadataIndex(name, torch.Size(offsets))


def _chunk(first: Optional[int], rows: int, shape: Sequence[int]) -> Any:
    if first is None:
        return dcp_metadata.ChunkStorageMetadata(torch.Size([]), torch.Size([]))
    offsets = [first] + [0] * (len(shape) - 1)
    return dcp_metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size([rows, *shape[1:]]))


def _write_item(index: Any, piece: Piece) -> Any:
    data = dcp_planner.TensorWriteData(
        _chunk(piece.first, len(piece.values) if piece.first is not None else 1, piece.shape),
        dcp_metadata.TensorProperties(dtype=piece.values.dtype),
        torch.Size(piece.shape),
    )
    return dcp_planner.WriteItem(index, dcp_planner.WriteItemType.SHARD, tensor_data=data)


def _checksum(path: str, offset: int, length: int) -> int:
    crc = 0
    with open(path, "rb") as file:
        file.seek(offset)
        while length > 0:
            block = file.read(min(_BLOCK, length))
            if not block:
                break
            crc, length = zlib.crc32(block, crc), length - len(block)
    return crc


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
