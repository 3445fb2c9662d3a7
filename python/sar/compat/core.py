"""Graph objects, under the names of the older package's ``sar.core``."""

from sar._lazy import list_names as _list_names
from sar.graph import manager as _manager
from sar.graph.block import DistributedBlock as DistributedBlock
from sar.graph.manager import GraphShardManager as GraphShardManager, HeteroGraphShardManager as HeteroGraphShardManager
from sar.graph.shards import GraphShard as GraphShard
from sar.graph.udf.batches import (
    EdgeBatch as EdgeBatch,
    NodeBatch as NodeBatch,
    message_has_parameters as message_has_parameters,
)
from sar.sampling import loader as _loader
from sar.sampling.loader import DataLoader as DataLoader, DistNeighborSampler as DistNeighborSampler

graphshard, sampling = _manager, _loader

_list_names(__name__)
