"""Writes the parts of a graph, with the users' ids of their nodes."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from sar.data.directory import ids_file, open_regular, scratch_directory
from sar.extras import need

from .dataset import Dataset


class PartsOptions(NamedTuple):
    """How parts are written.

    ``name``: of the graph; ``method``: how the assignment was made, for the description; ``format``: ``"sar"`` or
    ``"dgl"``; ``memory``: bytes that writing may take, the assignment among them, 0: 4 GiB; ``features``: what features
    of nodes in two or more dimensions are rounded to, ``"bfloat16"``, or empty
    """

    name: str
    method: str
    format: str = "dgl"
    memory: int = 0
    features: str = ""


def memory_to_write(dataset: Dataset, parts: int, format: str) -> int:
    """Bytes with which parts are written unless the user gives others: 4 GiB, or more where nodes alone need it."""
    return max(4 << 30, 2 * dataset.least_memory(parts, format))


def other_graph(directory: str, name: str) -> Optional[str]:
    """The description of a graph of another name in a directory: parts of every graph have the same file names, so a
    directory has room for one."""
    for file in sorted(glob.glob(os.path.join(glob.escape(directory), "*.json"))):
        if os.path.basename(file) == f"{name}.json":
            continue
        with contextlib.suppress(OSError, ValueError), open_regular(file) as handle:
            content = json.load(handle)
            if isinstance(content, dict) and "part-0" in content:
                return os.path.basename(file)
    return None


def write_parts(
    dataset: Dataset,
    assignment: np.ndarray,
    parts: int,
    directory: str,
    options: PartsOptions,
    progress: Optional[Callable[[int, int], None]] = None,
    ids: Sequence[dict[str, str]] = (),
) -> None:
    """Writes ``directory/<name>.json`` and ``directory/part<i>/``.

    :param dataset: the graph
    :param assignment: the part of each node, int32 ``[num_nodes]``
    :param progress: called with work done and work in all
    :param ids: for each part, by node type, the Parquet file of the users' ids of its nodes. Empty: the ids of the
        graph are split
    :raises sar.BudgetError: the memory does not do
    :raises ImportError: the graph has ids, and pyarrow is not installed
    """
    settings: dict[str, Any] = options._asdict()
    kinds = {kind["name"]: kind["rows"] for kind in dataset.info["node_types"]}
    whole: dict[str, str] = dataset.info["ids"] or {}
    names = {kind: ids_file(kind, n) for n, kind in enumerate(kinds) if kind in whole or any(kind in of for of in ids)}
    if not names:
        dataset.write_parts(assignment, parts, directory, settings, progress)
        _remove_ids(parts, directory)
        return
    with scratch_directory(os.path.join(directory, f".{options.name}-ids.partial")) as scratch:
        for part in range(parts):
            os.mkdir(os.path.join(scratch, f"part{part}"))
        for part, files in enumerate(ids):
            for kind, file in files.items():
                shutil.copyfile(file, os.path.join(scratch, f"part{part}", names[kind]))
        first = 0
        for kind, rows in kinds.items():
            if kind in whole:
                split_ids(whole[kind], assignment[first : first + rows], parts, scratch, names[kind])
            first += rows
        dataset.write_parts(assignment, parts, directory, {**settings, "ids": names, "ids_dir": scratch}, progress)


def _remove_ids(parts: int, directory: str) -> None:
    """Removes ids that an earlier run left, which DGL's description does not tell from those of this one."""
    for part in range(parts):
        for file in glob.glob(os.path.join(glob.escape(directory), f"part{part}", "ids_*.parquet")):
            os.unlink(file)


def split_ids(path: str, assignment: np.ndarray, parts: int, directory: str, name: str) -> None:
    """Writes the ids of the nodes of each part, in their order, to ``directory/part<i>/<name>``.

    :param path: a Parquet file with a column ``id``, one row for each entry of ``assignment``
    :raises ValueError: the file has no such column, or another number of rows
    """
    pa, pq = (need(name, "ingest", "writing the users' ids of each part") for name in ("pyarrow", "pyarrow.parquet"))
    with pq.ParquetFile(path) as source:
        if "id" not in source.schema_arrow.names or source.metadata.num_rows != len(assignment):
            raise ValueError(
                f"{path} has {source.metadata.num_rows} rows of columns {source.schema_arrow.names}: expected "
                f"{len(assignment)} rows of a column id"
            )
        schema = pa.schema([source.schema_arrow.field("id")])
        writers = []
        try:
            for part in range(parts):
                writers.append(pq.ParquetWriter(os.path.join(directory, f"part{part}", name), schema))
            at = 0
            for batch in source.iter_batches(batch_size=1 << 20, columns=["id"]):
                owner = assignment[at : at + len(batch)]
                at += len(batch)
                order = np.argsort(owner, kind="stable")
                ends = np.searchsorted(owner[order], np.arange(parts + 1))
                for part in np.flatnonzero(np.diff(ends)).tolist():
                    taken = batch.take(pa.array(order[ends[part] : ends[part + 1]]))
                    writers[part].write_batch(taken.cast(schema) if taken.schema != schema else taken)
        finally:
            for writer in writers:
                writer.close()
