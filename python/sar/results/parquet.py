"""A directory with one Parquet file a worker: ``NAME.parquet/part-00000-of-00004.parquet``.

Each file has a column ``id``, ascending, and the columns of the rows. Workers need no filesystem in common; each
writes under another name until all have written, so that nobody finds half of a result. Memory: the ids of own nodes,
and a row group.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Any, Iterator, NamedTuple, Sequence

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.data.directory import sync_directory
from sar.distributed.agreement import all_or_none, said_by_all

from .files import PART, PLACE, RUN, TOTAL, arrow, name_of, names_full_disk, parts_in
from .npy import written_dtype
from .rows import OwnRows

GROUP_BYTES = 2 << 20
"""Bytes of a row group, about."""
_NAME = "write_rows"


class Column(NamedTuple):
    """A named tensor, ``[own nodes]``, or ``[own nodes, width]`` which becomes a list of a fixed size."""

    name: str
    tensor: Tensor


def write(path: str, own: OwnRows, columns: Sequence[Column]) -> None:
    """Writes this worker's file. Collective; arguments have been checked and agreed.

    :raises OSError: the disk is full, or the directory cannot be made
    :raises FileExistsError: a file of that name, or a directory that holds something else
    :raises sar.RemoteError: one of these on another rank
    """
    session = _session.current()
    name = name_of(session.rank, session.world)
    scratch = os.path.join(path, f".{name}.partial")
    run = said_by_all(secrets.token_hex(16) if session.rank == 0 else "")[0]
    notes = {RUN: run, PLACE: f"{session.rank} of {session.world}", TOTAL: str(own.total)}
    try:
        all_or_none(_NAME, lambda: _prepare(path))
        all_or_none(_NAME, lambda: _write_file(scratch, own, columns, notes))
        all_or_none(_NAME, lambda: _remove_parts(path))
        all_or_none(_NAME, lambda: _publish(scratch, os.path.join(path, name)))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        with contextlib.suppress(OSError):
            os.rmdir(path)  # where nothing else is in it
        raise


def _prepare(path: str) -> None:
    if os.path.isfile(path):
        raise FileExistsError(
            f"{path} is a file, and every worker writes a file of its own into a directory of that name: remove it, or "
            "give another name"
        )
    os.makedirs(path, exist_ok=True)
    strange = sorted(n for n in os.listdir(path) if not PART.fullmatch(n) and not n.startswith("."))
    if strange:
        raise FileExistsError(
            f"the directory {path} holds {strange[0]!r}, which write_rows has not written: give another name"
        )


def _remove_parts(path: str) -> None:
    """Removes the files of an earlier call, before any of this one gets its name."""
    for name in parts_in(path):
        with contextlib.suppress(FileNotFoundError):  # another worker was faster
            os.unlink(os.path.join(path, name))


def _publish(scratch: str, path: str) -> None:
    os.replace(scratch, path)
    sync_directory(os.path.dirname(path))


def _write_file(path: str, own: OwnRows, columns: Sequence[Column], notes: dict[bytes, str]) -> None:
    pa = arrow()
    ids, order = _sorted_ids(pa, own)
    fields = [pa.field("id", ids.type, nullable=False)] + [_field(pa, column) for column in columns]
    schema = pa.schema(fields, metadata={key: value.encode() for key, value in notes.items()})
    with names_full_disk(path, sum(c.tensor.nbytes for c in columns) + ids.nbytes), open(path, "wb") as file:
        with pa.parquet.ParquetWriter(file, schema) as writer:
            for begin, end in _groups(columns, len(order)):
                picked = order[begin:end]
                rows = [
                    _array(pa, column.tensor.detach().to("cpu").index_select(0, picked), field.type)
                    for column, field in zip(columns, fields[1:])
                ]
                writer.write_batch(pa.record_batch([ids[begin:end], *rows], schema=schema))
        file.flush()
        os.fsync(file.fileno())


def _sorted_ids(pa: Any, own: OwnRows) -> tuple[Any, Tensor]:
    """Ids in ascending order, as an array of arrow, and the rows that have them."""
    if own.users is None:
        numbers, order = own.numbers.sort()
        return pa.array(numbers.numpy()), order
    table = pa.parquet.read_table(own.users, columns=["id"])
    if len(table) != len(own.numbers):
        raise ValueError(f"{own.users} has {len(table)} ids for {len(own.numbers)} nodes: partition the graph again")
    ids = table.column("id").combine_chunks()
    if isinstance(ids, pa.ChunkedArray):  # strings of more than 2 GiB
        ids = ids.cast(pa.large_string()).combine_chunks()
    import pyarrow.compute

    order = pyarrow.compute.sort_indices(ids)
    return ids.take(order), torch.from_numpy(order.to_numpy().astype("int64"))


def _groups(columns: Sequence[Column], rows: int) -> Iterator[tuple[int, int]]:
    """First rows and ends of row groups."""
    width = sum(c.tensor.element_size() * (c.tensor.shape[1] if c.tensor.dim() == 2 else 1) for c in columns) + 8
    step = max(1024, GROUP_BYTES // width)
    return ((begin, min(begin + step, rows)) for begin in range(0, rows, step))


def _field(pa: Any, column: Column) -> Any:
    kind = pa.from_numpy_dtype(torch.empty(0, dtype=written_dtype(column.tensor.dtype)).numpy().dtype)
    if column.tensor.dim() == 2:
        kind = pa.list_(pa.field("element", kind, nullable=False), column.tensor.shape[1])
    return pa.field(column.name, kind, nullable=False)


def _array(pa: Any, rows: Tensor, kind: Any) -> Any:
    rows = rows.to(written_dtype(rows.dtype)).contiguous()
    if rows.dim() == 1:
        return pa.array(rows.numpy())
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.view(-1).numpy()), type=kind)


def check(columns: Sequence[Column]) -> None:
    """Refuses what Parquet has no column for, and names that are there twice.

    :raises TypeError, ValueError: which, and what to do
    :raises ImportError: pyarrow is not installed
    """
    arrow()
    names = ["id"]
    for column in columns:
        if column.tensor.dtype.is_complex:
            raise TypeError(f"{column.name!r} is {column.tensor.dtype}: Parquet has no complex numbers; write .npy")
        if column.tensor.dim() > 2:
            raise ValueError(
                f"{column.name!r} has shape {tuple(column.tensor.shape)}: Parquet takes one or two dimensions; flatten "
                "it (tensor.flatten(1)), or write .npy"
            )
        if not column.name or column.name in names:
            raise ValueError(f"column {column.name!r} is there twice, or has no name; 'id' is taken by the ids")
        names.append(column.name)
