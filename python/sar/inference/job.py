"""What a worker of ``sar infer`` and ``sar evaluate`` does, from its environment to the results."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from typing import Any, Dict, List, NamedTuple

import torch
from torch import Tensor

from sar import comm
from sar._engine import abi
from sar.autograd.fused import low_memory
from sar.config import Config
from sar.data.loading import load_dgl_partition_data
from sar.data.partition import TYPE_KEY
from sar.distributed.agreement import all_or_none, equal_on_all, said_by_all
from sar.graph.construct import construct_full_graph
from sar.results.rows import own_rows
from sar.results.write import write_rows

from . import forward, metrics, model as models


class Ready(NamedTuple):
    """Everything is loaded."""

    built: models.Built
    graph: Any
    columns: Dict[str, Tensor]
    kinds: List[str]


def main(text: str) -> None:
    """Runs a job as the worker that the environment describes.

    :param text: the arguments of ``sar infer`` or ``sar evaluate`` as JSON
    """
    job = Namespace(**json.loads(text))
    Config.allow_outside_paths = job.allow_outside_paths
    comm.initialize_comms()
    ready = prepare(job)
    if job.command == "evaluate":
        found = evaluated(job, ready)
        if comm.rank() == 0:
            print(json.dumps(found) if job.as_json else metrics.table_of(found))
    else:
        infer(job, ready)
    comm.barrier()
    comm.shutdown()


def prepare(job: Namespace) -> Ready:
    """Loads this worker's part and the model, and makes the graph. Collective. Features that are matrices stay in their
    files until a layer reads them."""
    Config.features = "mapped"
    built = all_or_none("loading the model", lambda: models.build(job.model, job.model_args))
    all_or_none("loading the model", lambda: models.load(built.model, job.checkpoint))
    same = said_by_all(models.fingerprint(built.model))
    if len(set(same)) > 1:
        other = next(rank for rank, one in enumerate(same) if one != same[0])
        raise ValueError(f"the models of rank 0 and rank {other} differ: give all hosts the same checkpoint")
    rank = comm.rank()
    data = all_or_none("loading the partition", lambda: load_dgl_partition_data(job.data, rank, torch.device("cpu")))
    graph = construct_full_graph(data)
    readers = data.stored.readers() if data.stored is not None else {}
    columns = {name: column for name, column in data.node_features.items() if name != TYPE_KEY}
    for name, (shape, dtype, read) in readers.items():
        if len(shape) > 1:
            columns[name] = low_memory.reread(shape, dtype, read)
    return Ready(built, graph, columns, list(data.node_type_names))


def infer(job: Namespace, ready: Ready) -> None:
    """Computes the output for all nodes and writes it. Collective."""
    all_or_none("sar infer", lambda: own_rows(ready.graph, job.ntype or ready.kinds[0]))
    begin = time.perf_counter()
    given = (ready.built, ready.graph, ready.columns, ready.kinds, job.features)
    found = [forward.run(*given, job.embeddings, job.autocast)]
    kind, rows = all_or_none("sar infer", lambda: forward.rows_of(found.pop(), job.ntype))
    computed = time.perf_counter()
    if job.argmax:
        rows = rows.argmax(1)
    elif job.out.endswith(".parquet") and rows.dim() > 2:
        rows = rows.flatten(1)
    name = "prediction" if job.argmax else "value"
    write_rows(job.out, {name: rows} if job.out.endswith(".parquet") else rows, ready.graph, kind)
    memory = _largest_memory()
    if comm.rank() == 0:
        parts = ", ".join(f"{purpose} {size / (1 << 20):.0f} MiB" for purpose, size in memory.items())
        print(f"computed in {computed - begin:.1f} s, written in {time.perf_counter() - computed:.1f} s: {job.out}")
        print(f"the most that a worker held: {parts}")


def _largest_memory() -> Dict[str, int]:
    """The largest peak of any worker, by purpose. Collective."""
    names = ("tensors", "structure", "features", "window", "scratch", "resident")
    stats = comm.memory_stats()
    return dict(zip(names, equal_on_all((), [stats[name]["peak"] for name in names], abi.REDUCE)[1]))


def evaluated(job: Namespace, ready: Ready) -> Dict[str, Dict[str, Any]]:
    """Metrics by split. Collective; the values are those of rank 0."""
    kind = job.ntype or ready.kinds[0]
    if job.ntype is None and len(ready.kinds) > 1:
        having = [k for k in ready.kinds if f"{k}/{job.labels}" in ready.columns]
        if len(having) != 1:
            raise ValueError(f"node types {', '.join(having) or 'none'} have {job.labels!r}: name one with --ntype")
        kind = having[0]
    labels, splits = all_or_none("sar evaluate", lambda: metrics.targets_of(ready.columns, kind, job.labels))
    found = forward.run(ready.built, ready.graph, ready.columns, ready.kinds, job.features, None, job.autocast)
    _, logits = all_or_none("sar evaluate", lambda: forward.rows_of(found, kind))
    return metrics.evaluate(logits, labels, splits, job.metrics)


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
