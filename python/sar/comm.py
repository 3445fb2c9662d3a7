"""Rendezvous and tensor collectives.

Collectives are collective: every worker calls the same ones in the same order, also workers without nodes.
"""

from __future__ import annotations

from ._engine.allocator import set_allocator
from .distributed.collectives import (
    all_reduce,
    all_to_all,
    all_to_all_rounds,
    barrier,
    broadcast,
    exchange_single_tensor,
    exchange_tensors,
)
from .distributed.comm_thread import CommThread, comm_thread
from .distributed.gradients import gather_grads, sum_gradients, sync_params
from .distributed.initialize import (
    backend,
    comm_device,
    initialize_comms,
    is_initialized,
    master_ip,
    master_port,
    rank,
    set_num_threads,
    world_size,
)
from .distributed.network import dump_ip_address, get_ip_address, get_socket, get_socket_name, nfs_ip_init
from .distributed.shutdown import shutdown
from .profiling.metrics import log_epoch, metrics
from .profiling.stats import memory_stats, stats

__all__ = [
    "CommThread",
    "all_reduce",
    "all_to_all",
    "all_to_all_rounds",
    "backend",
    "barrier",
    "broadcast",
    "comm_device",
    "comm_thread",
    "dump_ip_address",
    "exchange_single_tensor",
    "exchange_tensors",
    "gather_grads",
    "get_ip_address",
    "get_socket",
    "get_socket_name",
    "initialize_comms",
    "is_initialized",
    "log_epoch",
    "master_ip",
    "master_port",
    "memory_stats",
    "metrics",
    "nfs_ip_init",
    "rank",
    "set_allocator",
    "set_num_threads",
    "shutdown",
    "stats",
    "sum_gradients",
    "sync_params",
    "world_size",
]
