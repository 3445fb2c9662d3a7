"""What cases share on the workers: graphs from edges in memory, tensors from arrays and back."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import numpy as np
import torch
from sar.common_tuples import PartitionData, ShardEdgesAndFeatures
from torch import nn

import sar

ETYPE = ("_N", "_E", "_N")


def build(part: dict[str, Any]) -> sar.GraphShardManager:
    """A graph from edges in memory, in the order given."""
    starts = part["start"].tolist()
    edges = (torch.from_numpy(part["src"]), torch.from_numpy(part["dst"]))
    ranges = list(zip(starts[:-1], starts[1:]))
    data = PartitionData([ShardEdgesAndFeatures(edges, {})], ranges, {}, ["_N"], [ETYPE], None)
    return sar.construct_full_graph(data)


def data_of(part: dict[str, Any], features: dict[str, np.ndarray] | None = None) -> PartitionData:
    """Partition data of one relation, or, where ``part`` has types, of several, made by hand.

    Edges fall to shards by the owner of their source, as the fields of partition data have it.
    """
    starts = torch.from_numpy(part["start"])
    src, dst = torch.from_numpy(part["src"]), torch.from_numpy(part["dst"])
    owner = torch.searchsorted(starts[1:], src, right=True)
    shards, columns = [], {k: torch.from_numpy(v) for k, v in (features or {}).items()}
    if "etype" in part:
        columns["_TYPE"] = torch.from_numpy(part["etype"])
    for q in range(len(starts) - 1):
        mine = owner == q
        shards.append(ShardEdgesAndFeatures((src[mine], dst[mine]), {k: c[mine] for k, c in columns.items()}))
    nodes = {"_TYPE": torch.from_numpy(part["ntype"])} if "ntype" in part else {}
    ranges = list(zip(part["start"][:-1].tolist(), part["start"][1:].tolist()))
    types = part.get("types", (["_N"], [("_N", "_E", "_N")]))
    return PartitionData(shards, ranges, nodes, types[0], types[1], None)


def numpy(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.detach().numpy().copy()
    if isinstance(tree, dict):
        return {k: numpy(v) for k, v in tree.items()}
    return [numpy(v) for v in tree] if isinstance(tree, (list, tuple)) else tree


def tensor(array: np.ndarray | None, grad: bool = False) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array.copy()).requires_grad_(grad)


def random_layer(make: Callable[[], nn.Module], seed: int = 11) -> nn.Module:
    """The layer with random parameters, none of them zero: biases that begin there hide mistakes."""
    torch.manual_seed(seed)
    model = make()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def refusal(call: Callable[..., Any], *args: Any) -> str:
    """The error that a call ends with, its kind first; "nothing" where there is none."""
    try:
        call(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def settings(**values: Any) -> Iterator[None]:
    """Settings of sar.Config, which are as before afterwards."""
    before = {name: getattr(sar.Config, name) for name in values}
    try:
        for name, value in values.items():
            setattr(sar.Config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(sar.Config, name, value)
