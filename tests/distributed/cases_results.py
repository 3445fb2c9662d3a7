"""What runs on the workers to write results."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

import sar
from sar.results import files, npy, parquet
from tests.support.worker import build, data_of, refusal


def values(numbers: np.ndarray, dtype: str, shape: list[int]) -> torch.Tensor:
    """A row for each original number, by which it can be known again."""
    count = int(np.prod(shape))
    rows = torch.from_numpy(numbers).view(-1, 1) * 7 + torch.arange(count)
    rows = (rows % 3 == 0) if dtype == "bool" else (rows % 120).to(getattr(torch, dtype))
    return rows.view(len(numbers), *shape)


def written(
    path: str, part: dict[str, Any], numbers: np.ndarray, dtype: str, shape: list[int], kind: str, round_bytes: int
) -> None:
    """Writes rows that tell their numbers, from a tensor that is not contiguous."""
    npy.ROUND_BYTES = round_bytes
    parquet.GROUP_BYTES = 1 << 12
    graph = build(part)
    mine = numbers[part["start"][sar.rank()] : part["start"][sar.rank() + 1]]
    rows = values(mine, dtype, shape)
    rows = torch.stack([rows, rows], -1)[..., 0]  # not contiguous
    ids = torch.from_numpy(numbers if kind == "all" else mine)
    sar.write_rows(path, rows, graph, ids=ids)


def of_partition(json: str, out: str, features: list[str]) -> None:
    """Features of a partition's nodes, written back."""
    data = sar.load_dgl_partition_data(json, sar.rank(), torch.device("cpu"))
    graph = sar.construct_full_graph(data)
    for name in features:
        kind, _, feature = name.partition("/")
        sar.write_rows(out.format(kind, feature), data.node_features[name], graph, kind)


def too_large(path: str, part: dict[str, Any]) -> None:
    graph = build(part)
    ids = torch.arange(part["start"][sar.rank()], part["start"][sar.rank() + 1])
    sar.write_rows(path, torch.rand(len(ids), 4000), graph, ids=ids)


def columns(path: str, part: dict[str, Any], names: list[str] | None) -> None:
    graph = build(part)
    first, end = part["start"][sar.rank()], part["start"][sar.rank() + 1]
    rows = torch.arange(first, end)
    if names is not None:
        both = torch.stack([rows.float(), -rows.float()], 1)
        sar.write_rows(path, both, graph, ids=rows, columns=names)
    else:
        sar.write_rows(path, {"class": rows % 3, "score": rows.double()[:, None] / 2}, graph, ids=rows)


def refused(part: dict[str, Any], path: str, wrong: str, rank: int, again: str) -> list[str]:
    """What each rank says when one of them, or all (-1), does something wrong, and what a second call does."""
    graph = build(part)
    first, end = part["start"][sar.rank()], part["start"][sar.rank() + 1]
    ids = torch.arange(first, end)
    rows: Any = torch.ones(end - first, 2)
    arguments: dict[str, Any] = {"ids": ids}
    given: Any = path
    at: Any = graph
    if rank in (-1, sar.rank()):
        if wrong == "name":
            given = path.replace("pred", f"pred{sar.rank()}")
        elif wrong == "elsewhere":
            given = os.path.join(os.path.dirname(path), "other", os.path.basename(path))
        elif wrong == "suffix":
            given = path + ".csv"
        elif wrong == "folder":
            given = os.path.join(os.path.dirname(path), "missing", "pred.npy")
        elif wrong == "rows":
            rows = torch.ones(end - first + 1, 2)
        elif wrong == "width":
            rows = torch.ones(end - first, 3)
        elif wrong == "empty":
            rows = torch.ones(end - first, 0)
        elif wrong == "dtype":
            rows = rows.double()
        elif wrong == "no tensor":
            rows = rows.numpy()
        elif wrong == "sparse":
            rows = rows.to_sparse()
        elif wrong == "dictionary":
            rows = {"a": rows}
        elif wrong == "deep":
            rows = torch.ones(end - first, 2, 2)
        elif wrong == "complex":
            rows = rows.to(torch.complex64)
        elif wrong == "columns":
            arguments["columns"] = ["a", "b", "c"]
        elif wrong == "id":
            rows = {"id": rows}
        elif wrong == "graph":
            at = "graph"
        elif wrong == "no ids":
            arguments = {}
        elif wrong == "float ids":
            arguments["ids"] = ids.float()
        elif wrong == "few ids":
            arguments["ids"] = ids[1:]
        elif wrong == "large ids":
            arguments["ids"] = ids + 1
        elif wrong == "same ids":
            arguments["ids"] = ids.clone().fill_(first)
        elif wrong == "type":
            arguments["ntype"] = "person"
    files.SHARED_SECONDS = 0.2
    said = []
    for turn in range(2):
        try:
            if turn:
                sar.write_rows(again, torch.ones(end - first, 2), graph, ids=ids)
            else:
                sar.write_rows(given, rows, at, **arguments)
            said.append("")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def of_block(part: dict[str, Any], path: str) -> str:
    data = data_of(part)
    (block,) = sar.construct_mfgs(data, torch.tensor([int(part["start"][sar.rank()])]), 1)
    return refusal(lambda: sar.write_rows(path, torch.ones(1), block))
