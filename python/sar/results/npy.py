"""One ``.npy`` file on a filesystem that all workers share.

The file is cut into one slab of consecutive ids per worker. Workers send each other rows in rounds, so that each writes
its own slab from the beginning to the end: no two of them write to one page of the file, which filesystems over a
network do not take well. Memory: ``ROUND_BYTES`` of rows twice, and 16 bytes for each own node.

The file is written under another name, and gets its own when all workers have written and synced their slabs.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
from typing import Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.data.directory import NPY_BEGIN, npy_header, sync_directory
from sar.distributed.agreement import all_or_none, raise_everywhere, said_by_all
from sar.distributed.collectives import exchange_tensors

from .files import await_shared, names_full_disk
from .rows import OwnRows

ROUND_BYTES = 32 << 20
"""Bytes of rows that all workers together may write in a round."""
_NAME = "write_rows"


class Layout(NamedTuple):
    """Rows of the file, and how they fall to workers."""

    rows: int
    row_bytes: int
    slab: int
    """Rows of each worker; the last may have fewer."""
    window: int
    """Rows of each worker in one round."""

    def part(self, rank: int, turn: int) -> Tuple[int, int]:
        """The rows that a worker writes in a round: first, and one past the last."""
        begin = min(self.rows, rank * self.slab)
        end = min(self.rows, begin + self.slab)
        first = min(end, begin + turn * self.window)
        return first, min(end, first + self.window)

    @property
    def rounds(self) -> int:
        return -(-self.slab // self.window)

    @property
    def size(self) -> int:
        return NPY_BEGIN + self.rows * self.row_bytes


def layout(rows: int, row_bytes: int, world: int) -> Layout:
    """Slabs of whole pages, as the rows of the file begin with one."""
    unit = NPY_BEGIN // math.gcd(NPY_BEGIN, row_bytes)
    slab = -(-max(1, -(-rows // world)) // unit) * unit
    window = max(1, min(slab, ROUND_BYTES // world // row_bytes))
    return Layout(rows, row_bytes, slab, window)


def write(path: str, own: OwnRows, tensor: Tensor) -> None:
    """Writes ``tensor``, ``[own nodes, ...]``, to rows of one file. Collective; arguments have been checked and agreed.

    :raises OSError: the disk is full, or the directory is not there
    :raises FileNotFoundError: not all workers see the file that rank 0 has made
    :raises ValueError: original ids that are there twice, or missing
    :raises sar.RemoteError: one of these on another rank
    """
    session = _session.current()
    rank, world = session.rank, session.world
    dtype = torch.empty(0, dtype=written_dtype(tensor.dtype)).numpy().dtype
    row_bytes = dtype.itemsize * int(math.prod(tensor.shape[1:]))
    plan = layout(own.total, row_bytes, world)
    scratch = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.partial")
    file = _File(scratch)
    try:
        nonce = secrets.token_hex(16) if rank == 0 else ""
        all_or_none(_NAME, lambda: file.create(nonce, plan.size) if rank == 0 else None)
        nonce = said_by_all(nonce)[0]
        all_or_none(_NAME, lambda: file.open(nonce) if rank else None)
        raise_everywhere(_NAME, _write_slab(file, plan, own, tensor))
        first = npy_header(dtype, (own.total, *tensor.shape[1:]))
        all_or_none(_NAME, lambda: file.publish(path, first) if rank == 0 else None)
    except BaseException:
        file.remove()
        raise
    finally:
        file.close()


def written_dtype(dtype: torch.dtype) -> torch.dtype:
    """What stands in the file: numpy has no bfloat16, and float32 holds its numbers exactly."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def _write_slab(file: _File, plan: Layout, own: OwnRows, tensor: Tensor) -> Optional[Exception]:
    """Takes part in all rounds, also after an error, which is returned: the other workers wait for the rows."""
    error: Optional[Exception] = None
    for begin, end, numbers, rows in _rounds(plan, own, tensor):
        if error is not None:
            continue
        try:
            file.write(NPY_BEGIN + begin * plan.row_bytes, _in_order(begin, end, numbers, rows))
        except Exception as caught:
            error = caught
    if error is None:
        try:
            os.fsync(file.descriptor)
        except OSError as caught:
            error = caught
    return error


def _rounds(plan: Layout, own: OwnRows, tensor: Tensor) -> Iterator[Tuple[int, int, Tensor, Tensor]]:
    """For each round the rows that this worker writes, first and one past the last, and what the workers have for them:
    numbers, int64 ``[n]``, and bytes, uint8 ``[n, row_bytes]``. Collective."""
    session = _session.current()
    numbers, order = own.numbers.sort()
    rows = tensor.detach().to("cpu")
    dtype = written_dtype(tensor.dtype)
    for turn in range(plan.rounds):
        parts = torch.tensor([plan.part(q, turn) for q in range(session.world)], dtype=torch.int64)
        cuts = torch.searchsorted(numbers, parts).tolist()
        received = exchange_tensors([numbers[a:b] for a, b in cuts])
        sent = [_bytes(rows.index_select(0, order[a:b]).to(dtype), plan.row_bytes) for a, b in cuts]
        found = exchange_tensors(sent, [len(part) for part in received])
        begin, end = parts[session.rank].tolist()
        yield begin, end, torch.cat(received), torch.cat(found)


def _bytes(rows: Tensor, row_bytes: int) -> Tensor:
    if not len(rows):
        return torch.empty((0, row_bytes), dtype=torch.uint8)
    return rows.contiguous().view(len(rows), -1).view(torch.uint8)


def _in_order(begin: int, end: int, numbers: Tensor, rows: Tensor) -> memoryview:
    """The bytes of rows ``begin`` to ``end``, each of which is there once."""
    at, order = numbers.sort()
    expected = torch.arange(begin, end)
    if not torch.equal(at, expected):
        raise ValueError(_strange(at, expected))
    return rows.index_select(0, order).numpy().reshape(-1).data


def _strange(at: Tensor, expected: Tensor) -> str:
    twice = at[1:][at.diff() == 0]
    if len(twice):
        return f"original id {int(twice[0])} is there twice: each node has an id of its own"
    missing = expected[~torch.isin(expected, at)]
    return f"no worker has a row of original id {int(missing[0])}: every node of the type needs one"


class _File:
    """The file while it is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = -1

    def create(self, nonce: str, size: int) -> None:
        """Makes it, with room for everything, and with ``nonce`` in it, by which the others know it."""
        self.remove()
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with names_full_disk(self.path, size):
            os.posix_fallocate(self.descriptor, 0, size)
        self.write(0, memoryview(nonce.encode()))
        os.fsync(self.descriptor)

    def open(self, nonce: str) -> None:
        """Opens what rank 0 has made.

        :raises FileNotFoundError: there is no such file here, or it is another
        """
        await_shared(
            self.path,
            lambda: self._found(nonce),
            "a .npy file is written by all workers, and needs a filesystem that their hosts share. Give every worker "
            "the same path, or write .parquet, one file a worker",
        )
        # not for reading: the system would have to hold whole pages of it, other workers' rows included
        self.descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)

    def _found(self, nonce: str) -> bool:
        try:
            with open(self.path, "rb") as file:
                return file.read(len(nonce)) == nonce.encode()
        except FileNotFoundError:
            return False

    def write(self, offset: int, data: memoryview) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self.descriptor, data[done:], offset + done)

    def publish(self, path: str, first: bytes) -> None:
        """Completes it, and gives it its name."""
        self.write(0, memoryview(first))
        os.fsync(self.descriptor)
        here, there = os.fstat(self.descriptor), os.stat(self.path)
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise FileExistsError(f"another job writes {path} at the same time: give each job a name of its own")
        os.replace(self.path, path)
        sync_directory(os.path.dirname(path) or ".")

    def remove(self) -> None:
        """Leaves no half-written file."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
