"""Small record types that scripts import."""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

from torch import Tensor

from ._partition import PartitionData

__all__ = ["PartitionData", "ShardEdgesAndFeatures", "SocketInfo"]


class SocketInfo(NamedTuple):
    """A network interface: its name and IPv4 address."""

    name: str
    ip_addr: str


class ShardEdgesAndFeatures(NamedTuple):
    """The edges from one partition into the worker's own nodes.

    ``edges``: source and destination ids (int64 ``[n]`` each, ids of the whole graph across types);
    ``edge_features``: tensors of n rows, ``_TYPE`` among them.
    """

    edges: Tuple[Tensor, Tensor]
    edge_features: Dict[str, Tensor]
