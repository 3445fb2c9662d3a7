"""Graph objects."""

from . import sampling
from .graphshard import GraphShardManager, HeteroGraphShardManager

__all__ = ["GraphShardManager", "HeteroGraphShardManager", "sampling"]
