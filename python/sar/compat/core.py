"""Graph objects, under the names of the older package's ``sar.core``."""

from sar.graph import manager as graphshard
from sar.graph.block import DistributedBlock
from sar.graph.manager import GraphShardManager, HeteroGraphShardManager
from sar.graph.shards import GraphShard
from sar.graph.udf.batches import EdgeBatch, NodeBatch, message_has_parameters
from sar.sampling import loader as sampling
from sar.sampling.loader import DataLoader, DistNeighborSampler

__all__ = [
    "DataLoader",
    "DistNeighborSampler",
    "DistributedBlock",
    "EdgeBatch",
    "GraphShard",
    "GraphShardManager",
    "HeteroGraphShardManager",
    "NodeBatch",
    "graphshard",
    "message_has_parameters",
    "sampling",
]
