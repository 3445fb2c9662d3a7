"""Graph objects."""

from . import sampling
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
