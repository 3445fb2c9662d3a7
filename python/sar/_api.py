"""The public names of :mod:`sar`. Importing this module imports torch, and takes as long; :mod:`sar._lazy` does it when
one of the names is used."""

from __future__ import annotations

from . import comm, config, errors, function, nn, pyg
from .autograd.memo import clear_memoized, memoize
from .autograd.remat import remat
from .checkpoints.checkpointer import Checkpointer
from .checkpoints.load import load_checkpoint
from .checkpoints.save import save_checkpoint
from .comm import (
    comm_device,
    gather_grads,
    initialize_comms,
    log_epoch,
    memory_stats,
    metrics,
    nfs_ip_init,
    rank,
    set_allocator,
    set_num_threads,
    stats,
    sum_gradients,
    sync_params,
    world_size,
)
from .compat import common_tuples, core
from .config import Config
from .data import loading as data_loading
from .data.ingest import ingest
from .data.loading import load_dgl_partition_data, suffix_key_lookup
from .distributed.environment import environment
from .distributed.logging_setup import logger, logging_setup
from .errors import (
    BudgetError,
    DeadlineError,
    FormatError,
    PeerLostError,
    RemoteError,
    RendezvousError,
    ScheduleError,
    WholeGraphError,
)
from .graph import construct as construct_shard_manager
from .graph.block import DistributedBlock
from .graph.construct import construct_full_graph, construct_mfgs, convert_dist_graph
from .graph.edge_tensor.softmax import edge_softmax
from .graph.manager import GraphShardManager, HeteroGraphShardManager
from .graph.rowwise import rowwise
from .graph.udf.batches import message_has_parameters
from .integrations.dgl.patches.switch import patch_dgl, patched_edge_softmax, unpatch_dgl
from .integrations.replacements import replaced
from .links import (
    batched_negative_sampling,
    fetch,
    link_metrics,
    negative_sampling,
    structured_negative_sampling,
)
from .loading import load
from .nn import RelGraphConv, batch_norm as distributed_bn
from .nn.batch_norm import DistributedBN1D
from .nn.convert import convert_batchnorm
from .preparation import describe, prepare, restore
from .profiling.plan import estimate_memory
from .profiling.run_log import RunLog
from .profiling.trace import engine_profile, trace
from .results.write import write_rows
from .sampling.loader import DataLoader, DistNeighborSampler

__all__ = [
    "BudgetError",
    "Checkpointer",
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
    "RunLog",
    "ScheduleError",
    "WholeGraphError",
    "batched_negative_sampling",
    "clear_memoized",
    "comm",
    "comm_device",
    "common_tuples",
    "config",
    "construct_full_graph",
    "convert_batchnorm",
    "construct_mfgs",
    "construct_shard_manager",
    "convert_dist_graph",
    "core",
    "data_loading",
    "describe",
    "distributed_bn",
    "edge_softmax",
    "engine_profile",
    "environment",
    "errors",
    "estimate_memory",
    "fetch",
    "function",
    "gather_grads",
    "ingest",
    "initialize_comms",
    "link_metrics",
    "load",
    "load_checkpoint",
    "load_dgl_partition_data",
    "log_epoch",
    "logger",
    "logging_setup",
    "memoize",
    "memory_stats",
    "message_has_parameters",
    "metrics",
    "negative_sampling",
    "nfs_ip_init",
    "nn",
    "patch_dgl",
    "patched_edge_softmax",
    "prepare",
    "pyg",
    "rank",
    "remat",
    "replaced",
    "restore",
    "rowwise",
    "save_checkpoint",
    "set_allocator",
    "set_num_threads",
    "stats",
    "structured_negative_sampling",
    "suffix_key_lookup",
    "sum_gradients",
    "sync_params",
    "trace",
    "unpatch_dgl",
    "world_size",
    "write_rows",
]
