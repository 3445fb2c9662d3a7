"""Module paths of the older ``sar`` package, which scripts import: ``sar.core``, ``sar.data_loading`` and the like.

Each is one more name of the module that holds its contents now, so what a script replaces in one is replaced in both.
"""

from __future__ import annotations

import sys

from sar.data import loading
from sar.distributed import logging_setup
from sar.graph import construct, manager
from sar.graph.edge_tensor import softmax
from sar.integrations.dgl.patches import switch
from sar.nn import batch_norm
from sar.sampling import loader

from . import common_tuples, core

sys.modules.update(
    {
        "sar.common_tuples": common_tuples,
        "sar.construct_shard_manager": construct,
        "sar.core": core,
        "sar.core.graphshard": manager,
        "sar.core.sampling": loader,
        "sar.data_loading": loading,
        "sar.distributed_bn": batch_norm,
        "sar.edge_softmax": softmax,
        "sar.logging_setup": logging_setup,
        "sar.patch_dgl": switch,
    }
)
