"""Module paths of the older ``sar`` package, which scripts import: ``sar.core``, ``sar.data_loading`` and the like.

Each is one more name of the module that holds its contents now, so what a script replaces in one is replaced in both.
"""

from __future__ import annotations

import sys

from sar.data import loading as data_loading
from sar.distributed import logging_setup
from sar.graph import construct as construct_shard_manager
from sar.graph.edge_tensor import softmax
from sar.integrations.dgl.patches import switch
from sar.nn import batch_norm as distributed_bn

from . import common_tuples, core

__all__ = ["common_tuples", "construct_shard_manager", "core", "data_loading", "distributed_bn"]

sys.modules.update(
    {
        "sar.common_tuples": common_tuples,
        "sar.construct_shard_manager": construct_shard_manager,
        "sar.core": core,
        "sar.core.graphshard": core.graphshard,
        "sar.core.sampling": core.sampling,
        "sar.data_loading": data_loading,
        "sar.distributed_bn": distributed_bn,
        "sar.edge_softmax": softmax,
        "sar.logging_setup": logging_setup,
        "sar.patch_dgl": switch,
    }
)
