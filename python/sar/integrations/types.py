"""Classes of DGL and PyG that annotations name. Type checkers alone import this module."""

from __future__ import annotations

from typing import MutableMapping

from dgl import DGLGraph
from dgl.distributed import DistGraph, GraphPartitionBook
from dgl.heterograph import DGLBlock
from torch import Tensor
from torch_geometric.data import Data, HeteroData

__all__ = ["Block", "DGLBlock", "DGLGraph", "Data", "DistGraph", "GraphPartitionBook", "HeteroData"]


class Block(DGLBlock):
    """A block of DGL, whose columns have types."""

    srcdata: MutableMapping[str, Tensor]
    dstdata: MutableMapping[str, Tensor]
    edata: MutableMapping[str, Tensor]
