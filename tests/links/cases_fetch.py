"""Rows of any nodes, on a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from tests.parity.cases_exchange import sent
from tests.support.worker import build, numpy, refusal


def built(part: dict[str, Any], ids: np.ndarray) -> sar.GraphShardManager:
    """A graph whose nodes have original ids."""
    graph = build(part)
    graph._state.node_keys["_N"] = lambda: torch.from_numpy(ids)
    return graph


def fetched(
    part: dict[str, Any], ids: np.ndarray, x: np.ndarray, asked: np.ndarray, grads: np.ndarray, dtype: str, by: str
) -> dict[str, Any]:
    """Rows and the gradient.

    :param by: "row": ids that count rows of all workers, "original": original ids
    """
    graph = built(part, ids)
    leaf = torch.from_numpy(x).to(getattr(torch, dtype)).requires_grad_()
    given = (sar.pyg.edge_index(graph),) if by == "original" else ()
    out = sar.fetch(leaf, torch.from_numpy(asked), *given)
    out.backward(torch.from_numpy(grads).to(out.dtype))
    return {"out": numpy(out.double()), "grad": numpy(leaf.grad.double()), "dtype": str(out.dtype)}


def whole_numbers(part: dict[str, Any], ids: np.ndarray, x: np.ndarray, asked: np.ndarray) -> Any:
    """Rows that have no gradient: of each kind, and in no_grad."""
    build(part)
    asked_of = torch.from_numpy(asked)
    kinds = [torch.from_numpy(x).to(dtype) for dtype in (torch.int64, torch.bool, torch.float16)]
    with torch.no_grad():
        plain = sar.fetch(torch.from_numpy(x).requires_grad_(), asked_of)
    return [numpy(sar.fetch(kind, asked_of)) for kind in kinds], plain.requires_grad


def bytes_of_repeated(part: dict[str, Any], ids: np.ndarray, x: np.ndarray, times: int) -> list[int]:
    """Bytes that travel for all nodes, each asked for once, and so many times."""
    build(part)
    leaf, found = torch.from_numpy(x).requires_grad_(), []
    everyone = torch.tensor(len(x))
    sar.comm.all_reduce(everyone, "sum")
    for repeat in (1, times):
        before = sent().sum()
        sar.fetch(leaf, torch.arange(int(everyone)).repeat(repeat)).sum().backward()
        found.append(int(sent().sum() - before))
    return found


def wrong(part: dict[str, Any], ids: np.ndarray, x: np.ndarray) -> dict[str, str]:
    """What each says; rank 0 alone is wrong."""
    graph, first = built(part, ids), sar.rank() == 0
    leaf, none = torch.from_numpy(x), torch.empty(0, dtype=torch.int64)
    tried = {
        "too large": (leaf, torch.tensor([1 << 40]) if first else none),
        "negative": (leaf, torch.tensor([-1]) if first else none),
        "floats": (leaf, torch.zeros(2) if first else none),
        "two dimensions": (leaf, torch.zeros(2, 2).long() if first else none),
        "rows that differ": (leaf if first else leaf[:, :1], none),
        "gradient": (leaf.half().requires_grad_() if first else leaf.half(), none),
        "no original": (leaf, torch.tensor([-5]) if first else none, graph),
    }
    found = {name: refusal(sar.fetch, *given) for name, given in tried.items()}
    assert sar.fetch(leaf, none).shape == (0, *leaf.shape[1:])
    return found
