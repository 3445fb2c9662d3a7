"""SAR: full-batch training of graph neural networks on graphs split over several workers.

The five calls that a DGL script needs::

    sar.initialize_comms(rank, world_size, master_ip, "sar")
    data = sar.load_dgl_partition_data("graph.json", rank, torch.device("cpu"))
    graph = sar.construct_full_graph(data)     # in place of the DGL graph
    sar.sync_params(model)                     # once
    sar.gather_grads(model)                    # after each loss.backward()

Importing the package starts nothing: the engine is loaded at its first use.
"""

from __future__ import annotations

from . import comm, common_tuples, config, core, data_loading, errors, function, nn
from ._observe import engine_profile, trace
from ._overlap_grads import overlap_grads
from ._remat import remat
from .comm import (
    comm_device,
    gather_grads,
    initialize_comms,
    memory_stats,
    nfs_ip_init,
    rank,
    set_allocator,
    set_num_threads,
    stats,
    sync_params,
    world_size,
)
from .config import Config
from .construct_shard_manager import construct_full_graph, construct_mfgs, convert_dist_graph
from .core import DistributedBlock, GraphShardManager, HeteroGraphShardManager, message_has_parameters
from .core.sampling import DataLoader, DistNeighborSampler
from .data_loading import load_dgl_partition_data, suffix_key_lookup
from .distributed_bn import DistributedBN1D, convert_batchnorm
from .edge_softmax import edge_softmax
from .errors import (
    BudgetError,
    DeadlineError,
    FormatError,
    PeerLostError,
    RemoteError,
    RendezvousError,
    ScheduleError,
)
from .logging_setup import logger, logging_setup
from .nn import RelGraphConv
from .ops.memo import forget, memoize
from .patch_dgl import patch_dgl, patched_edge_softmax, unpatch_dgl
from .planning import estimate_memory

__version__ = "0.1.0"

__all__ = [
    "BudgetError",
    "Config",
    "DeadlineError",
    "DataLoader",
    "DistNeighborSampler",
    "DistributedBN1D",
    "DistributedBlock",
    "FormatError",
    "GraphShardManager",
    "HeteroGraphShardManager",
    "PeerLostError",
    "RelGraphConv",
    "RemoteError",
    "RendezvousError",
    "ScheduleError",
    "comm",
    "comm_device",
    "common_tuples",
    "config",
    "construct_full_graph",
    "convert_batchnorm",
    "construct_mfgs",
    "convert_dist_graph",
    "core",
    "data_loading",
    "edge_softmax",
    "engine_profile",
    "errors",
    "estimate_memory",
    "forget",
    "function",
    "gather_grads",
    "initialize_comms",
    "load_dgl_partition_data",
    "logger",
    "logging_setup",
    "memoize",
    "memory_stats",
    "message_has_parameters",
    "nfs_ip_init",
    "nn",
    "overlap_grads",
    "patch_dgl",
    "patched_edge_softmax",
    "rank",
    "remat",
    "set_allocator",
    "set_num_threads",
    "stats",
    "suffix_key_lookup",
    "sync_params",
    "trace",
    "unpatch_dgl",
    "world_size",
]
