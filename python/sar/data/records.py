"""Small record types."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Tuple

if TYPE_CHECKING:
    from torch import Tensor

    from .partition_book import CanonicalEtype


class SocketInfo(NamedTuple):
    """A network interface: its name and IPv4 address."""

    name: str
    ip_addr: str


class TensorPlace(Enum):
    """What a tensor that a message function reads belongs to."""

    SRC = 0
    DST = 1
    EDGE = 2
    PARAM = 3


class ShardEdgesAndFeatures(NamedTuple):
    """The edges from one partition into the worker's own nodes.

    ``edges``: source and destination ids (int64 ``[n]`` each, ids of the whole graph across types);
    ``edge_features``: tensors of n rows, ``_TYPE`` among them.
    """

    edges: Tuple[Tensor, Tensor]
    edge_features: Dict[str, Tensor]


class ShardInfo(NamedTuple):
    """Which shard a message function runs for, as given to functions that ask for it.

    ``shard_idx``: the worker that owns the sources; ``src_node_range`` and ``tgt_node_range``: ids ``(start, end)`` of
    that worker's and of the own nodes; ``edge_range``: first edge and one past the last, in the order of the worker's
    edges by shard.
    """

    shard_idx: int
    src_node_range: Tuple[int, int]
    tgt_node_range: Tuple[int, int]
    edge_range: Tuple[int, int]


class GraphShardManagerData(NamedTuple):
    """What one layer of a graph is made of, on one worker.

    ``all_shard_edges``: per worker q, the edges from q's nodes into own nodes; ``src_node_ranges``: per worker, ids
    ``(start, end)`` of its nodes; ``tgt_node_range``: of own nodes; ``tgt_seed_nodes``: ids of the destinations, int64
    ``[num_dst]``; ``local_src_seed_nodes``: ids of own sources, int64 ``[num_src]``.
    """

    all_shard_edges: List[ShardEdgesAndFeatures]
    src_node_ranges: List[Tuple[int, int]]
    tgt_node_range: Tuple[int, int]
    tgt_seed_nodes: Tensor
    local_src_seed_nodes: Tensor


class AggregationData(NamedTuple):
    """What one ``update_all`` was asked to do.

    ``all_input_names``: place and name of every tensor the message function reads; ``n_params``: parameters that it
    uses; ``grad_enabled``: whether gradients were recorded; ``remote_data``: whether rows of other workers are read.
    """

    graph_shard_manager: Any
    message_func: Any
    reduce_func: Any
    etype: Any
    all_input_names: List[Tuple[TensorPlace, str]]
    n_params: int
    grad_enabled: bool
    remote_data: bool


class SampledEdges(NamedTuple):
    """The edges of one relation in a block, by destination.

    ``indptr``: int64 ``[num_dst + 1]``; ``indices``: int64 ``[n]``, source nodes; ``ids``: int64 ``[n]`` or empty;
    ``data``: columns of n rows
    """

    indptr: Tensor
    indices: Tensor
    ids: Tensor
    data: Dict[str, Tensor]


class SampledLayer(NamedTuple):
    """One block: ids of its source nodes by type, of which the first are the destinations, and its edges."""

    nodes: Dict[str, Tensor]
    num_dst: Dict[str, int]
    edges: Dict[CanonicalEtype, SampledEdges]
