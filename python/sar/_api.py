"""The public names of :mod:`sar`. Importing this module imports torch, and takes as long; :mod:`sar._lazy` does it when
one of the names is used. Type checkers take `as` for "public"."""

from . import (
    comm as comm,
    config as config,
    errors as errors,
    function as function,
    nn as nn,
    pyg as pyg,
)
from ._lazy import list_names as _list_names
from .autograd.memo import clear_memoized as clear_memoized, memoize as memoize
from .autograd.remat import remat as remat
from .checkpoints.checkpointer import Checkpointer as Checkpointer
from .checkpoints.load import load_checkpoint as load_checkpoint
from .checkpoints.save import save_checkpoint as save_checkpoint
from .comm import (
    comm_device as comm_device,
    gather_grads as gather_grads,
    initialize_comms as initialize_comms,
    log_epoch as log_epoch,
    memory_stats as memory_stats,
    metrics as metrics,
    nfs_ip_init as nfs_ip_init,
    rank as rank,
    set_allocator as set_allocator,
    set_num_threads as set_num_threads,
    stats as stats,
    sum_gradients as sum_gradients,
    sync_params as sync_params,
    world_size as world_size,
)
from .compat import (
    common_tuples as common_tuples,
    construct_shard_manager as construct_shard_manager,
    core as core,
    data_loading as data_loading,
    distributed_bn as distributed_bn,
)
from .config import Config as Config
from .data.ingest import ingest as ingest
from .data.loading import load_dgl_partition_data as load_dgl_partition_data, suffix_key_lookup as suffix_key_lookup
from .distributed.environment import environment as environment
from .distributed.logging_setup import logger as logger, logging_setup as logging_setup
from .errors import (
    BudgetError as BudgetError,
    DeadlineError as DeadlineError,
    FormatError as FormatError,
    PeerLostError as PeerLostError,
    RemoteError as RemoteError,
    RendezvousError as RendezvousError,
    ScheduleError as ScheduleError,
    WholeGraphError as WholeGraphError,
)
from .graph.block import DistributedBlock as DistributedBlock
from .graph.construct import (
    construct_full_graph as construct_full_graph,
    construct_mfgs as construct_mfgs,
    convert_dist_graph as convert_dist_graph,
)
from .graph.edge_tensor.softmax import edge_softmax as edge_softmax
from .graph.manager import GraphShardManager as GraphShardManager, HeteroGraphShardManager as HeteroGraphShardManager
from .graph.rowwise import rowwise as rowwise
from .graph.udf.batches import message_has_parameters as message_has_parameters
from .integrations.dgl.patches.switch import (
    patch_dgl as patch_dgl,
    patched_edge_softmax as patched_edge_softmax,
    unpatch_dgl as unpatch_dgl,
)
from .integrations.replacements import replaced as replaced
from .links import (
    batched_negative_sampling as batched_negative_sampling,
    fetch as fetch,
    link_metrics as link_metrics,
    negative_sampling as negative_sampling,
    structured_negative_sampling as structured_negative_sampling,
)
from .loading import load as load
from .nn import RelGraphConv as RelGraphConv
from .nn.batch_norm import DistributedBN1D as DistributedBN1D
from .nn.convert import convert_batchnorm as convert_batchnorm
from .preparation import describe as describe, prepare as prepare, restore as restore
from .profiling.plan import estimate_memory as estimate_memory
from .profiling.run_log import RunLog as RunLog
from .profiling.trace import engine_profile as engine_profile, trace as trace
from .results.write import write_rows as write_rows
from .sampling.loader import DataLoader as DataLoader, DistNeighborSampler as DistNeighborSampler

_list_names(__name__)
