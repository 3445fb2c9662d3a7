"""Files of a checkpoint: tensors as :mod:`sar.checkpoints.tensor_files` writes them, and a description in JSON.

.. code-block:: text

    DIR/latest                           the name of the last complete checkpoint
    DIR/step-000000000012-5f0c9a1e/      one checkpoint; it gets this name when all ranks have written
        checkpoint.json                  the description: values that are no tensors, places of tensors, checksums
        rank-00000.safetensors, ...      tensors, one file a rank

Neither holds code. A checkpoint may come from elsewhere, so what the description says is checked before it is believed.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import zlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from sar.data.directory import open_regular, write_text
from sar.errors import FormatError

from .placement import PLACES, RANK, ROWS, SAME, Placed
from .tensor_files import TensorFile
from .tree import decode

DESCRIPTION, LATEST = "checkpoint.json", "latest"
VERSION = 2
NAME = re.compile(r"step-(\d{12,})-[0-9a-f]{8}")
_LARGEST = 1 << 30
"""Bytes that a description may have."""
_FILES = 256
"""Files of tensors that are open at a time."""


class Stored(NamedTuple):
    """A piece of a stored tensor, in a rank's file: ``rows`` from ``first``, None of a tensor without dimensions, and
    their CRC-32."""

    name: str
    first: Optional[int]
    rows: int
    rank: int
    crc: int

    def stored(self, shape: List[int]) -> Tuple[str, List[int]]:
        """Its name and its shape in the file, where it is of a tensor of ``shape``."""
        if self.first is None:
            return self.name, []
        whole = self.rows == shape[0]
        return self.name if whole else f"{self.name}[{self.first}:{self.first + self.rows}]", [self.rows, *shape[1:]]


def tensors_file(folder: str, rank: int) -> str:
    return os.path.join(folder, f"rank-{rank:05d}.safetensors")


def write_description(folder: str, description: Dict[str, Any]) -> None:
    text = json.dumps({"format": "sar checkpoint", "version": VERSION, **description})
    write_text(os.path.join(folder, DESCRIPTION), f'{{"crc": {zlib.crc32(text.encode())},\n"checkpoint":\n{text}\n}}\n')


def _typed(value: Any, kind: type) -> Any:
    """A value of JSON that has to be of a type. Numbers are not negative, and fit into 63 bits."""
    if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 63):
        raise ValueError(f"expected {kind.__name__}, found {repr(value)[:60]}")
    return value


def _distinct(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"expected each name once in an object of {', '.join(sorted(found)[:5])}")
    return found


class Reader:
    """A checkpoint on disk.

    :param folder: the directory of one checkpoint
    :raises FileNotFoundError: there is no description
    :raises sar.FormatError: the description is damaged, or of a version that this one does not know
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, DESCRIPTION)
        with open_regular(self.path, links=False) as file:
            lines = file.buffer.read(_LARGEST + 1).split(b"\n")
        try:
            self.crc = int(lines[0].partition(b":")[2].rstrip(b",")[:20])
            text = lines[2]
        except (IndexError, ValueError):
            raise self._damaged("it is no description of a checkpoint") from None
        if zlib.crc32(text) != self.crc:
            raise self._damaged("its checksum is another")
        try:
            found = json.loads(text, object_pairs_hook=_distinct)
            if found["version"] == VERSION:
                self._check(found)
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
            problem = f"expected {error}" if isinstance(error, KeyError) else error
            raise self._damaged(f"it is no description of a checkpoint: {problem}") from None
        if found["version"] != VERSION:
            raise FormatError(
                f"{self.path} has version {found['version']}, and this package reads version {VERSION}: use the "
                "package that wrote it",
                self.path,
            )
        self.description: Dict[str, Any] = found
        self._file = functools.lru_cache(_FILES)(lambda rank: TensorFile(tensors_file(folder, rank), links=False))

    def _damaged(self, reason: str) -> FormatError:
        return FormatError(f"{self.path} is damaged: {reason}", self.path)

    def _check(self, found: Dict[str, Any]) -> None:
        """Takes what a description says.

        :raises Exception: something is not as it should be
        """
        self.world = _typed(found["world"], int)  # how many ranks wrote it
        if not self.world:
            raise ValueError("expected at least one rank, found none")
        self.nodes = {kind: _typed(n, int) for kind, n in found["nodes"].items()}
        _typed(found["step"], int), _typed(found["edges_by_original_ids"], bool)
        self.tensors = {name: self._placed(name, one) for name, one in found["tensors"].items()}
        self._check_rows()
        for section in ("model", "optimizer", "extra", "random"):
            self._check_trees(section, _typed(found["trees"][section], list))
        self._pieces = self._checked_pieces(found["pieces"])

    def _placed(self, name: str, one: Dict[str, Any]) -> Placed:
        dtype, shapes = getattr(torch, one["dtype"], None), _typed(one["shapes"], list)
        shapes = [[_typed(n, int) for n in _typed(shape, list)] for shape in shapes]
        if one["place"] not in PLACES or not isinstance(dtype, torch.dtype):
            raise ValueError(f"expected a place and a dtype of {name}, found {one['place']!r} and {one['dtype']!r}")
        if len(shapes) != (1 if one["place"] == SAME else self.world):
            raise ValueError(f"expected a shape of {name} for each of {self.world} ranks, found {len(shapes)}")
        if any(math.prod(max(1, n) for n in shape) >= 1 << 58 for shape in shapes):
            raise ValueError(f"expected a shape of {name} that fits into memory, found {shapes}")
        if one["place"] == ROWS and (one["ntype"] not in self.nodes or not all(shapes)):
            raise ValueError(f"expected {name} to have rows of a type of nodes, found {one['ntype']!r}, {shapes}")
        return Placed(name, one["place"], dtype, shapes, one["ntype"])

    def _check_rows(self) -> None:
        for one in self.tensors.values():
            ids = self.tensors.get(f"ids.{one.ntype}") if one.place == ROWS else None
            if one.place == ROWS and (
                ids is None
                or ids.place != ROWS
                or ids.dtype != torch.int64
                or ids.shapes != [[n] for n in one.counts()]
            ):
                raise ValueError(f"expected an id of a node for each row of {one.name}")

    def _check_trees(self, section: str, trees: List[Any]) -> None:
        if len(trees) not in (1, self.world):
            raise ValueError(f"expected trees.{section} of one rank or of {self.world}, found {len(trees)}")
        for one in trees:
            for inner in one.values() if section in ("model", "optimizer") else [one]:
                try:
                    found = decode(inner, self._known)
                    if section == "model" and not (isinstance(found, dict) and all(type(key) is str for key in found)):
                        raise ValueError("names of parameters")
                except ValueError as error:
                    raise ValueError(f"expected {error} in trees.{section}") from None

    def _known(self, name: Any) -> None:
        if not isinstance(name, str) or name not in self.tensors:
            raise ValueError("the name of a tensor it describes")

    def _checked_pieces(self, items: List[Any]) -> Dict[str, List[Stored]]:
        """By the names of stored tensors, pieces that have each row once, in order."""
        given: Dict[str, List[Stored]] = {}
        for name, first, *numbers in items:
            piece = Stored(name, first if first is None else _typed(first, int), *[_typed(n, int) for n in numbers])
            given.setdefault(name, []).append(piece)
        found = {}
        for one in self.tensors.values():
            for rank in range(self.world) if one.place == RANK else (0,):
                name, shape = one.stored_name(rank), one.stored_shape(rank)
                found[name] = sorted(given.pop(name, []), key=lambda piece: piece.first or 0)
                at = 0
                for piece in found[name]:
                    if piece.first != (at if shape else None) or not piece.rows or piece.rank >= self.world:
                        raise ValueError(f"expected row {at} of {name} next, in a rank's file, found {piece}")
                    at += piece.rows
                if at != (0 if 0 in shape else shape[0] if shape else 1):
                    raise ValueError(f"expected pieces of {name} with all rows of {shape}, found {at}")
        if given:
            raise ValueError(f"expected pieces of the tensors it describes, found one of {next(iter(given))}")
        return found

    def rows(self, one: Placed, first: int, end: int) -> Iterator[Tuple[int, Tensor]]:
        """Pieces of a tensor of rows that have some from ``first`` to before ``end``, with their first rows."""
        for piece in self._pieces[one.name]:
            if piece.first is not None and piece.first < end and first < piece.first + piece.rows:
                yield piece.first, self._file(piece.rank).read(*piece.stored(one.stored_shape(0)), one.dtype, piece.crc)

    def tensor(self, one: Placed, rank: int) -> Tensor:
        """A tensor, as a rank had it.

        :raises sar.FormatError: its bytes are damaged, or missing
        """
        rank = rank if one.place == RANK else 0
        shape, pieces = one.stored_shape(rank), self._pieces[one.stored_name(rank)]
        for piece in pieces:  # before memory is taken for them
            self._file(piece.rank).check(*piece.stored(shape))
        found = torch.empty(shape, dtype=one.dtype)
        for piece in pieces:
            values = self._file(piece.rank).read(*piece.stored(shape), one.dtype, piece.crc)
            found[... if piece.first is None else slice(piece.first, piece.first + piece.rows)] = values
        return found


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
        with open_regular(path) as file:
            name = file.buffer.read(200).decode(errors="replace").strip()
    except FileNotFoundError:
        return None
    if not NAME.fullmatch(name):
        raise FormatError(f"{path} is damaged: it does not name a checkpoint. Load one with step=", path)
    if not os.path.isfile(os.path.join(directory, name, DESCRIPTION)):
        raise FormatError(f"{path} names {name}, which is not there. Load another with step=", path)
    return os.path.join(directory, name)
