"""Record types, under the names of the older package's ``sar.common_tuples``."""

from sar._lazy import list_names as _list_names
from sar.data.partition import PartitionData as PartitionData
from sar.data.records import (
    AggregationData as AggregationData,
    GraphShardManagerData as GraphShardManagerData,
    ShardEdgesAndFeatures as ShardEdgesAndFeatures,
    ShardInfo as ShardInfo,
    SocketInfo as SocketInfo,
    TensorPlace as TensorPlace,
)

_list_names(__name__)
