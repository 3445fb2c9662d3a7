"""Rendezvous and tensor collectives.

Collectives are collective: every worker calls the same ones in the same order, also workers without nodes.
"""

# type checkers take `as` for "public"
from ._engine.allocator import set_allocator as set_allocator
from ._lazy import list_names as _list_names
from .distributed.collectives import (
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    all_to_all_rounds as all_to_all_rounds,
    barrier as barrier,
    broadcast as broadcast,
    exchange_single_tensor as exchange_single_tensor,
    exchange_tensors as exchange_tensors,
)
from .distributed.comm_thread import CommThread as CommThread, comm_thread as comm_thread
from .distributed.gradients import (
    gather_grads as gather_grads,
    sum_gradients as sum_gradients,
    sync_params as sync_params,
)
from .distributed.initialize import (
    backend as backend,
    comm_device as comm_device,
    initialize_comms as initialize_comms,
    is_initialized as is_initialized,
    master_ip as master_ip,
    master_port as master_port,
    rank as rank,
    set_num_threads as set_num_threads,
    world_size as world_size,
)
from .distributed.network import (
    dump_ip_address as dump_ip_address,
    get_ip_address as get_ip_address,
    get_socket as get_socket,
    get_socket_name as get_socket_name,
    nfs_ip_init as nfs_ip_init,
)
from .distributed.shutdown import shutdown as shutdown
from .profiling.metrics import log_epoch as log_epoch, metrics as metrics
from .profiling.stats import memory_stats as memory_stats, stats as stats

_list_names(__name__)
