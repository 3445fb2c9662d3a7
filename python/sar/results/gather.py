"""Joins the Parquet files that workers wrote into one, in the order of ids."""

from __future__ import annotations

import contextlib
import os
from typing import Any, BinaryIO, Iterator, List, NamedTuple, Sequence

import numpy as np

from sar.data.directory import npy_header, whole_file
from sar.errors import FormatError

from .files import PART, PLACE, RUN, TOTAL, arrow, name_of, names_full_disk, parts_in

BATCH_BYTES = 64 << 20
"""Bytes of rows that are held of all files together, about."""


class Gathered(NamedTuple):
    """What was joined: files, rows, and what wrote them."""

    parts: int
    rows: int


def gather(folder: str, out: str) -> Gathered:
    """Joins ``folder/part-*.parquet`` into ``out``, a ``.parquet`` or ``.npy`` file, by ascending id.

    Memory: 64 MiB of rows and a row group of each file. ``out`` appears when it is complete.

    :raises sar.FormatError: a file is missing, damaged, or of another run
    :raises ValueError: another ending, or ids or columns that a ``.npy`` file cannot have
    :raises OSError: the files cannot be read or written
    :raises ImportError: pyarrow is not installed
    """
    pa = arrow()
    suffix = os.path.splitext(out)[1]
    if suffix not in (".npy", ".parquet"):
        raise ValueError(f"the name {out!r} does not say the format: give one that ends in .npy or .parquet")
    if os.path.isdir(out):
        raise ValueError(f"{out} is a directory: give the name of a file")
    with contextlib.ExitStack() as stack:
        files = _opened(pa, folder, stack)
        total = sum(file.metadata.num_rows for file in files)
        scratch = os.path.join(os.path.dirname(out), f".{os.path.basename(out)}.partial")
        write = _write_parquet if suffix == ".parquet" else _write_npy
        needed = sum(os.path.getsize(os.path.join(folder, name)) for name in parts_in(folder))
        with names_full_disk(scratch, needed), whole_file(out, scratch) as file:
            write(pa, files, total, file)
    return Gathered(len(files), total)


def _opened(pa: Any, folder: str, stack: contextlib.ExitStack) -> List[Any]:
    """All files of one call of write_rows, checked."""
    names = parts_in(folder)
    if not names:
        raise FileNotFoundError(f"the directory {folder} holds no part-00000-of-N.parquet: give what write_rows wrote")
    world = int(PART.fullmatch(names[0])[2])  # type: ignore[index]
    missing = [name for rank in range(world) if (name := name_of(rank, world)) not in names]
    if missing:
        raise FormatError(
            f"{folder} holds {len(names)} files of {world}: {missing[0]} is missing. Copy the files of all hosts into "
            "one directory",
            os.path.join(folder, missing[0]),
        )
    if len(names) > world:
        raise FormatError(f"{folder} holds files of runs of different numbers of workers: {names[0]} and {names[-1]}")
    files = []
    for rank, name in enumerate(names):
        path = os.path.join(folder, name)
        try:
            files.append(stack.enter_context(pa.parquet.ParquetFile(path, memory_map=True)))
        except pa.ArrowInvalid as error:
            raise FormatError(f"{path}: {error}", path) from None
        notes, first = files[-1].schema_arrow.metadata or {}, files[0].schema_arrow.metadata
        if notes.get(PLACE, b"").decode() != f"{rank} of {world}" or notes.get(RUN) != first.get(RUN):
            raise FormatError(f"{path} was not written together with {names[0]}: give the files of one run", path)
        if not files[-1].schema_arrow.equals(files[0].schema_arrow):
            raise FormatError(f"{path} has other columns than {names[0]}: {files[-1].schema_arrow.names}", path)
    rows, told = sum(file.metadata.num_rows for file in files), files[0].schema_arrow.metadata.get(TOTAL, b"")
    if told.decode() != str(rows):
        raise FormatError(f"the files in {folder} have {rows} rows, but {told.decode()} were written", folder)
    return files


def _write_parquet(pa: Any, files: Sequence[Any], total: int, file: BinaryIO) -> None:
    schema = files[0].schema_arrow.remove_metadata()
    with pa.parquet.ParquetWriter(file, schema) as writer:
        for table in merged(pa, files):
            writer.write_table(table.cast(schema), row_group_size=1 << 20)


def _write_npy(pa: Any, files: Sequence[Any], total: int, file: BinaryIO) -> None:
    """One array of all columns beside the ids, which must be 0 to N-1."""
    schema = files[0].schema_arrow
    values = [schema.field(name).type for name in schema.names[1:]]
    if not pa.types.is_integer(schema.field("id").type):
        raise ValueError(f"a .npy file has rows 0, 1, ..., and the ids are {schema.field('id').type}: write .parquet")
    if len(set(values)) != 1 or (len(values) > 1 and pa.types.is_fixed_size_list(values[0])):
        raise ValueError(f"a .npy file holds one array, and there are columns {schema.names[1:]}: write .parquet")
    width = values[0].list_size if pa.types.is_fixed_size_list(values[0]) else len(values)
    kind = values[0].value_type if pa.types.is_fixed_size_list(values[0]) else values[0]
    dtype = np.dtype(kind.to_pandas_dtype())
    flat = not pa.types.is_fixed_size_list(values[0]) and len(values) == 1
    at = 0
    file.write(npy_header(dtype, (total,) if flat else (total, width)))
    for table in merged(pa, files):
        ids = table.column("id").to_numpy()
        if not np.array_equal(ids, np.arange(at, at + len(ids))):
            raise ValueError(f"ids are not 0 to {total - 1}, each once, which a .npy file needs: write .parquet")
        at += len(ids)
        columns = [_numbers(pa, table.column(name)) for name in table.column_names[1:]]
        rows = columns[0] if len(columns) == 1 else np.stack(columns, 1)
        file.write(np.ascontiguousarray(rows, dtype=dtype).tobytes())


def _numbers(pa: Any, column: Any) -> np.ndarray[Any, Any]:
    chunk = column.combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):
        chunk = pa.concat_arrays(chunk.chunks)
    array: np.ndarray[Any, Any]
    if pa.types.is_fixed_size_list(chunk.type):
        array = chunk.flatten().to_numpy(zero_copy_only=False)
    else:
        array = chunk.to_numpy(zero_copy_only=False)
    return array


def merged(pa: Any, files: Sequence[Any]) -> Iterator[Any]:
    """The rows of files that are each in ascending order of ids, in that order, as tables."""
    import pyarrow.compute as pc

    width = max(1, max(_row_bytes(file) for file in files))
    size = max(256, BATCH_BYTES // len(files) // width)
    sources = [_Source(pa, pc, file, size) for file in files]
    while True:
        sources = [source for source in sources if source.fill()]
        if not sources:
            return
        # no file has a row at or below this that is not here
        bound = pc.min(pa.array([source.last for source in sources], type=sources[0].kind))
        table = pa.concat_tables([source.take(bound) for source in sources])
        yield table.take(pc.sort_indices(table, sort_keys=[("id", "ascending")]))


def _row_bytes(file: Any) -> int:
    data = file.metadata
    size = sum(data.row_group(i).total_byte_size for i in range(data.num_row_groups))
    return int(size // max(1, data.num_rows))


class _Source:
    """A file, and those of its rows that were read and not yet given on."""

    def __init__(self, pa: Any, pc: Any, file: Any, size: int) -> None:
        self._pc, self._pa = pc, pa
        self._batches = file.iter_batches(batch_size=size, use_threads=False)
        self._table: Any = file.schema_arrow.empty_table()
        self.kind = file.schema_arrow.field("id").type

    def fill(self) -> bool:
        """Reads on where nothing is left. False at the end."""
        while not len(self._table):
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._table = self._pa.Table.from_batches([batch])
        return True

    @property
    def last(self) -> Any:
        return self._table.column("id")[-1].as_py()

    def take(self, bound: Any) -> Any:
        """The rows up to an id."""
        count = self._pc.sum(self._pc.less_equal(self._table.column("id"), bound)).as_py() or 0
        taken, self._table = self._table.slice(0, count), self._table.slice(count)
        return taken
