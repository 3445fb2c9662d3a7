"""Files of tensors, which the library safetensors writes and reads: numbers alone, which run no code."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import zlib
from typing import Any, Dict, Iterator, Mapping, Sequence

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sar.data.directory import open_regular
from sar.errors import FormatError
from sar.results.files import names_full_disk

# A mapped file that is cut off while it is read ends the process. Releases for Python 3.9 can only map.
_BACKEND: Dict[str, Any] = {"backend": "pread"} if sys.version_info >= (3, 10) else {}


def write_tensors(path: str, tensors: Mapping[str, Tensor]) -> Dict[str, int]:
    """Writes a file, and syncs it.

    :param tensors: in the memory of the host, contiguous; no two of them share memory
    :returns: the CRC-32 of each
    :raises OSError: it cannot be written
    """
    real = {name: torch.view_as_real(t) if t.is_complex() else t for name, t in tensors.items()}
    with names_full_disk(path, sum(t.nbytes for t in real.values())):
        try:
            save_file(real, path)
        except SafetensorError as error:
            code = re.search(r"os error (\d+)", str(error))
            raise (OSError(int(code[1]), os.strerror(int(code[1])), path) if code else error) from None
        os.chmod(path, os.stat(os.path.dirname(path)).st_mode & 0o666)  # the library makes it for its user alone
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    return {name: _crc(t) for name, t in real.items()}


def _crc(tensor: Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)


class TensorFile:
    """A file of tensors on disk.

    :param links: whether a symbolic link to it will do
    :raises sar.FormatError: it is no such file, or no regular file
    """

    def __init__(self, path: str, links: bool = True) -> None:
        self.path = path
        with open_regular(path, links) as file, self._named():
            self._file = safe_open(f"/proc/self/fd/{file.fileno()}", "pt", **_BACKEND)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, MemoryError):
            raise
        except Exception as error:  # several kinds, and they do not say of which file
            raise FormatError(f"{self.path} is damaged: expected a file of safetensors: {error}", self.path) from None

    def read_all(self) -> Dict[str, Tensor]:
        with self._named():
            return {name: self._file.get_tensor(name) for name in sorted(self._file.keys())}

    def check(self, name: str, shape: Sequence[int]) -> None:
        """:raises sar.FormatError: the file does not have a tensor of this shape (of complex numbers: as pairs)"""
        with self._named():
            found = self._file.get_slice(name).get_shape()
            if found not in (list(shape), [*shape, 2]):
                raise ValueError(f"{name} should have the shape {list(shape)}, found {found}")

    def read(self, name: str, shape: Sequence[int], dtype: torch.dtype, crc: int) -> Tensor:
        """One tensor.

        :raises sar.FormatError: it is not there, has another shape or dtype, or another checksum
        """
        self.check(name, shape)
        with self._named():
            values = self._file.get_tensor(name)
            if _crc(values) != crc:
                raise ValueError(f"the checksum of {name} is another. Load an earlier checkpoint with step=")
            values = torch.view_as_complex(values) if dtype.is_complex else values
            if values.dtype != dtype or list(values.shape) != list(shape):
                raise ValueError(f"{name} should be {dtype}, {list(shape)}, found {values.dtype}, {list(values.shape)}")
            return values
