"""Graph objects."""

from .graphshard import GraphShardManager, HeteroGraphShardManager

__all__ = ["GraphShardManager", "HeteroGraphShardManager"]
