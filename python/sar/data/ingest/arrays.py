"""Arrays that are read and written in blocks of rows, so that none of them is ever in memory as a whole."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Union

import numpy as np

from sar.data.directory import NPY_BEGIN, npy_header
from sar.errors import FormatError

BLOCK_BYTES = 16 << 20


class Rows:
    """An array ``[rows, ...]`` that is read in blocks.

    :param name: what messages call it
    :param pieces: give arrays, or maps of files, that lie one below the other. They are called again for each block,
        so that no block stays mapped after it was read
    :param convert: makes of a block, as it is read, one with as many rows
    :raises ValueError: pieces that differ in more than their number of rows
    """

    def __init__(
        self, name: str, *pieces: Callable[[], np.ndarray], convert: Callable[[np.ndarray], np.ndarray] = np.array
    ) -> None:
        self.name, self.pieces, self._convert = name, pieces, convert
        arrays = [np.atleast_1d(piece()) for piece in pieces]
        kinds = {f"{array.dtype} {['rows', *array.shape[1:]]}" for array in arrays}
        if len(kinds) > 1:
            raise ValueError(f"{name}: pieces of one array differ in their number of rows alone; there are {kinds}")
        self._starts = [0, *np.cumsum([len(array) for array in arrays]).tolist()]
        sample = convert(arrays[0][:1])
        self.shape: tuple[int, ...] = (self._starts[-1], *sample.shape[1:])
        self.dtype: np.dtype[Any] = sample.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def block(self, begin: int, end: int) -> np.ndarray:
        """A copy of rows ``begin`` to ``end - 1``."""
        found = [
            np.atleast_1d(piece())[max(begin - start, 0) : end - start]
            for start, stop, piece in zip(self._starts, self._starts[1:], self.pieces)
            if begin < stop and end > start
        ]
        whole = found[0] if len(found) == 1 else np.concatenate(found or [np.atleast_1d(self.pieces[0]())[:0]])
        return self._convert(whole)

    def whole(self) -> np.ndarray:
        """A copy of all of it: for small arrays."""
        return self.block(0, len(self))

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows, in order."""
        step = block_rows(self.dtype, self.shape[1:])
        for begin in range(0, len(self), step):
            yield self.block(begin, min(begin + step, len(self)))

    def view(self, change: Callable[[np.ndarray], np.ndarray]) -> Rows:
        """The same data seen otherwise: ``change`` makes a view of each piece, such as a column of it."""
        return Rows(self.name, *(lambda piece=piece: change(piece()) for piece in self.pieces))


def joined(files: list[str]) -> Rows:
    """``.npy`` files, one below the other."""
    found = [npy_rows(path) for path in files]
    return Rows(found[0].name, *(piece for rows in found for piece in rows.pieces))


def block_rows(dtype: Any, shape: tuple[int, ...]) -> int:
    """Rows of a block of about ``BLOCK_BYTES``."""
    return max(1, BLOCK_BYTES // max(1, np.dtype(dtype).itemsize * int(np.prod(shape))))


def memory_rows(name: str, values: Any) -> Rows:
    """An array or a tensor that is in memory. numpy has no bfloat16, so it is float32 from here on."""
    if str(getattr(values, "dtype", "")) == "torch.bfloat16":
        values = values.float()
    array = values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    _check_dtype(name, array.dtype)
    return Rows(name, lambda: array)


def npy_rows(path: Union[str, os.PathLike[str]], title: str = "") -> Rows:
    """A ``.npy`` file.

    :param title: what messages call it; empty for its path

    :raises sar.FormatError: it is not one, is cut short, or holds Python objects
    """
    name = os.fspath(path)
    try:
        rows = Rows(title or name, lambda: np.load(name, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise FormatError(f"{name}: not an array in numpy's format ({error})", name) from None
    _check_dtype(rows.name, rows.dtype)
    return rows


def unpack_npz(path: Union[str, os.PathLike[str]], folder: Path) -> dict[str, Rows]:
    """The arrays of an ``.npz`` file, each unpacked into a file of its own in ``folder``.

    :raises sar.FormatError: it is not a zip file, or a member is damaged
    """
    name = os.fspath(path)
    found: dict[str, Rows] = {}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(name) as archive:
            for number, member in enumerate(archive.infolist()):
                if not member.filename.endswith(".npy"):
                    continue
                target = folder / f"{number}.npy"
                with archive.open(member) as packed, open(target, "wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked, 1 << 20)
                key = member.filename[: -len(".npy")]
                found[key] = npy_rows(target, f"{name}:{key}")
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise FormatError(f"{name}: not a whole .npz file ({error})", name) from None
    return found


def _check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise FormatError(f"{name}: expected numbers of at most 64 bits, found {dtype}", name)


class NpyWriter:
    """Writes a ``.npy`` file block by block. The number of rows may become known last."""

    def __init__(self, path: Path, dtype: Any, row_shape: tuple[int, ...] = ()) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.dtype = np.dtype(np.uint8 if np.dtype(dtype) == bool else dtype)
        self.row_shape = row_shape
        self.rows = 0
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by close
        self._file.write(bytes(NPY_BEGIN))

    def write(self, block: np.ndarray) -> None:
        """Appends rows ``[rows, *row_shape]``."""
        if block.shape[1:] != self.row_shape:
            raise ValueError(f"{self.path.name}: rows of {self.row_shape} and of {block.shape[1:]}")
        data = memoryview(np.ascontiguousarray(block, dtype=self.dtype).reshape(-1).view(np.uint8).data)
        while len(data):
            data = data[self._file.write(data) :]
        self.rows += len(block)

    def close(self) -> None:
        """Writes the header."""
        self._file.seek(0)
        self._file.write(npy_header(self.dtype, (self.rows, *self.row_shape)))
        self._file.close()


def copy_rows(rows: Rows, path: Path) -> NpyWriter:
    """Writes an array to a file, and gives the closed writer."""
    writer = NpyWriter(path, rows.dtype, rows.shape[1:])
    for block in rows.blocks():
        writer.write(block)
    writer.close()
    return writer
