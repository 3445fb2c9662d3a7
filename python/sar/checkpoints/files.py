"""Files of a checkpoint: tensors as :mod:`sar.checkpoints.tensor_files` writes them, and a description in JSON.

.. code-block:: text

    DIR/latest                           the name of the last complete checkpoint
    DIR/step-000000000012-5f0c9a1e/      one checkpoint; it gets this name when all ranks have written
        checkpoint.json                  the description: values that are no tensors, places of tensors, checksums
        __0_0.distcp, __1_0.distcp       tensors, one file a rank
        .metadata                        for tools of torch.distributed.checkpoint; never read here

Reading needs the description alone. It is JSON, and tensors are read with ``weights_only=True``, so that a file from
elsewhere cannot run code.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import zlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from sar.errors import FormatError
from sar.results.files import write_text

DESCRIPTION, LATEST = "checkpoint.json", "latest"
VERSION = 1
NAME = re.compile(r"step-(\d{12,})-[0-9a-f]{8}")


class Stored(NamedTuple):
    """A piece of a tensor in a file: ``shape`` and ``dtype`` are those of the whole stored tensor; ``rows`` from
    ``first``; ``length`` bytes from ``offset`` of ``file``, with their CRC-32."""

    name: str
    first: Optional[int]
    rows: int
    shape: List[int]
    dtype: str
    file: str
    offset: int
    length: int
    crc: int


def write_description(folder: str, description: Dict[str, Any]) -> None:
    text = json.dumps({"format": "sar checkpoint", "version": VERSION, **description})
    write_text(os.path.join(folder, DESCRIPTION), f'{{"crc": {zlib.crc32(text.encode())},\n"checkpoint":\n{text}\n}}\n')


class Reader:
    """A checkpoint on disk.

    :param folder: the directory of one checkpoint
    :raises FileNotFoundError: there is no description
    :raises sar.FormatError: the description is damaged, or of a version that this one does not know
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        path = os.path.join(folder, DESCRIPTION)
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
        try:
            self.crc = int(lines[0].partition(b":")[2].rstrip(b","))
            text = lines[2]
        except (IndexError, ValueError):
            raise FormatError(f"{path} is damaged: it is no description of a checkpoint", path) from None
        if zlib.crc32(text) != self.crc:
            raise FormatError(f"{path} is damaged: its checksum is another", path)
        self.description: Dict[str, Any] = json.loads(text)
        if self.description["version"] != VERSION:
            raise FormatError(
                f"{path} has version {self.description['version']}, and this package reads version {VERSION}: use the "
                "package that wrote it",
                path,
            )
        self._pieces: Dict[str, List[Stored]] = {}
        for item in self.description["pieces"]:
            self._pieces.setdefault(item[0], []).append(Stored(*item))

    @property
    def world(self) -> int:
        """How many ranks wrote it."""
        return int(self.description["world"])

    def rows(self, name: str, first: int, end: int) -> Iterator[Tuple[int, Tensor]]:
        """Pieces of a stored tensor that have rows from ``first`` to before ``end``, with their first rows."""
        for piece in self._pieces.get(name, []):
            if piece.first is not None and piece.first < end and first < piece.first + piece.rows:
                yield piece.first, self._read(piece)

    def tensor(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A stored tensor.

        :raises sar.FormatError: its bytes are damaged, or missing
        """
        found = torch.empty(list(shape), dtype=dtype)
        known = self._pieces.get(name, [])
        if found.numel() and sum(piece.rows for piece in known) != (shape[0] if shape else 1):
            path = os.path.join(self.folder, DESCRIPTION)
            raise FormatError(f"{path} is damaged: it has not all rows of {name}", path)
        for piece in known:
            values = self._read(piece)
            if piece.first is None:
                found.copy_(values)
            else:
                found[piece.first : piece.first + piece.rows] = values
        return found

    def _read(self, piece: Stored) -> Tensor:
        path = os.path.join(self.folder, piece.file)
        with open(path, "rb") as file:
            file.seek(piece.offset)
            data = file.read(piece.length)
        if len(data) != piece.length or zlib.crc32(data) != piece.crc:
            raise FormatError(
                f"{path} is damaged: the checksum of {piece.name}, {piece.length} bytes from {piece.offset}, is "
                "another. Load an earlier checkpoint with step=",
                path,
                piece.offset,
            )
        try:
            values = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
            raise FormatError(f"{path}: {piece.name} cannot be read: {error}", path, piece.offset) from None
        expected = [] if piece.first is None else [piece.rows, *piece.shape[1:]]
        if not isinstance(values, Tensor) or list(values.shape) != expected:
            raise FormatError(
                f"{path}: {piece.name} is not of the shape {expected} that was written", path, piece.offset
            )
        return values


def checkpoints_in(directory: str) -> List[str]:
    """Names of the complete checkpoints in a directory, the oldest first."""
    found = [name for name in os.listdir(directory) if NAME.fullmatch(name)]
    written = {}
    for name in found:
        try:
            written[name] = os.stat(os.path.join(directory, name, DESCRIPTION)).st_mtime_ns
        except FileNotFoundError:
            continue
    return sorted(written, key=lambda name: (written[name], name))


def find(directory: str, step: Optional[int] = None) -> Optional[str]:
    """The path of a checkpoint: the last one, or that of a step. None: no checkpoint was completed in the directory.

    :param directory: of checkpoints, or of one checkpoint
    :raises FileNotFoundError: there is none of that step
    :raises sar.FormatError: the file ``latest`` is damaged, or names a checkpoint that is not there
    """
    if os.path.isfile(os.path.join(directory, DESCRIPTION)):
        return directory
    if step is not None:
        names = checkpoints_in(directory) if os.path.isdir(directory) else []
        known = [name for name in names if int(NAME.fullmatch(name)[1]) == step]  # type: ignore[index]
        if not known:
            steps = ", ".join(str(int(NAME.fullmatch(name)[1])) for name in names)  # type: ignore[index]
            raise FileNotFoundError(f"{directory} has no checkpoint of step {step}; there are: {steps or 'none'}")
        return os.path.join(directory, known[-1])
    path = os.path.join(directory, LATEST)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            name = file.read(200).strip()
    except FileNotFoundError:
        return None
    if not NAME.fullmatch(name):
        raise FormatError(f"{path} is damaged: it does not name a checkpoint. Load one with step=", path)
    if not os.path.isfile(os.path.join(directory, name, DESCRIPTION)):
        raise FormatError(f"{path} names {name}, which is not there. Load another with step=", path)
    return os.path.join(directory, name)
