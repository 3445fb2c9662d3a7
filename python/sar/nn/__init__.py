"""Layers that need torch alone. They run on graph managers and blocks, whether DGL is installed or not.

Names, arguments, parameters and results are those of ``dgl.nn``: a model may take its layers from either, and load
the state dict of the other. Scripts that have DGL can as well use DGL's layers, unchanged.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .appnp import APPNPConv, sign_features
from .batch_norm import DistributedBN1D
from .batchnormact import BatchNormAct
from .gatconv import GATConv, GATv2Conv
from .ginconv import GINConv
from .graphconv import GraphConv
from .hetero import HeteroGraphConv
from .relgraphconv import RelGraphConv, TypedLinear
from .sageconv import SAGEConv

if TYPE_CHECKING:
    from . import functional

__all__ = [
    "APPNPConv",
    "BatchNormAct",
    "DistributedBN1D",
    "GATConv",
    "GATv2Conv",
    "GINConv",
    "GraphConv",
    "HeteroGraphConv",
    "RelGraphConv",
    "SAGEConv",
    "TypedLinear",
    "functional",
    "sign_features",
]


def __getattr__(name: str) -> Any:
    """Few scripts use :mod:`sar.nn.functional`, so it is imported at its first use."""
    if name == "functional":
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
