"""Graph objects."""

from . import lazy_ops, lazy_shapes, sampling  # noqa: F401  the first two have edge tensors know what they can do
from .block import DistributedBlock
from .graphshard import GraphShardManager, HeteroGraphShardManager
from .sampling import DataLoader, DistNeighborSampler
from .shards import GraphShard
from .udf import EdgeBatch, NodeBatch, message_has_parameters

__all__ = [
    "DataLoader",
    "DistNeighborSampler",
    "DistributedBlock",
    "EdgeBatch",
    "GraphShard",
    "GraphShardManager",
    "HeteroGraphShardManager",
    "NodeBatch",
    "message_has_parameters",
    "sampling",
]
