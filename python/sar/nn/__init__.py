"""Layers that need torch alone. They run on graph managers and blocks, whether DGL is installed or not.

Names, arguments, parameters and results are those of ``dgl.nn``: a model may take its layers from either, and load
the state dict of the other. Scripts that have DGL can as well use DGL's layers, unchanged.
"""

from . import functional
from .appnp import APPNPConv, sign_features
from .batch_norm import DistributedBN1D
from .batchnormact import BatchNormAct
from .gatconv import GATConv, GATv2Conv
from .ginconv import GINConv
from .graphconv import GraphConv
from .hetero import HeteroGraphConv
from .relgraphconv import RelGraphConv, TypedLinear
from .sageconv import SAGEConv

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
