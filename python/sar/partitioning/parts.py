"""Writes the parts of a graph, with the users' ids of their nodes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import numpy as np

from sar.data.directory import ids_file
from sar.extras import need

from .dataset import Dataset

LEAST_MEMORY = 64 << 20
"""Bytes that writing parts in SAR's format needs."""


class PartsOptions(NamedTuple):
    """How parts are written.

    ``name``: of the graph; ``method``: how the assignment was made, for the description; ``format``: ``"sar"`` or
    ``"dgl"``; ``memory``: bytes that SAR's format may take beside some for each node, 0: 4 GiB
    """

    name: str
    method: str
    format: str = "dgl"
    memory: int = 0


def write_parts(
    dataset: Dataset,
    assignment: np.ndarray,
    parts: int,
    directory: str,
    options: PartsOptions,
    progress: Optional[Callable[[int, int], None]] = None,
) -> None:
    """Writes ``directory/<name>.json`` and ``directory/part<i>/``.

    :param dataset: the graph
    :param assignment: the part of each node, int32 ``[num_nodes]``
    :param progress: called with work done and work in all
    :raises ImportError: the graph has ids, and pyarrow is not installed
    """
    settings: dict[str, Any] = options._asdict()
    paths: dict[str, str] = dataset.info["ids"] or {}
    if not paths:
        dataset.write_parts(assignment, parts, directory, settings, progress)
        return
    os.makedirs(directory, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=f".{options.name}-ids-", suffix=".partial", dir=directory)
    try:
        files, first = {}, 0
        for number, kind in enumerate(dataset.info["node_types"]):
            name, rows = kind["name"], kind["rows"]
            if name in paths:
                files[name] = ids_file(name, number)
                split_ids(paths[name], assignment[first : first + rows], parts, scratch, files[name])
            first += rows
        named = {"ids": files, "ids_dir": scratch} if options.format == "sar" else {}
        dataset.write_parts(assignment, parts, directory, {**settings, **named}, progress)
        if not named:
            for part in range(parts):
                for file in files.values():
                    os.replace(os.path.join(scratch, f"part{part}", file), os.path.join(directory, f"part{part}", file))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


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
                os.makedirs(os.path.join(directory, f"part{part}"), exist_ok=True)
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
