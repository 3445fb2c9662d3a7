"""Record types, under the names of the older package's ``sar.common_tuples``."""

from sar.data.partition import PartitionData
from sar.data.records import (
    AggregationData,
    GraphShardManagerData,
    ShardEdgesAndFeatures,
    ShardInfo,
    SocketInfo,
    TensorPlace,
)

__all__ = [
    "AggregationData",
    "GraphShardManagerData",
    "PartitionData",
    "ShardEdgesAndFeatures",
    "ShardInfo",
    "SocketInfo",
    "TensorPlace",
]
