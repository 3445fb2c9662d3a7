"""Graph objects."""

from . import sampling
from .block import DistributedBlock
from .graphshard import GraphShardManager, HeteroGraphShardManager
from .shards import GraphShard

__all__ = ["DistributedBlock", "GraphShard", "GraphShardManager", "HeteroGraphShardManager", "sampling"]
