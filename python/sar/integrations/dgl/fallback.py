"""DGL's own functions, for graphs that are not split."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.function as functions

__all__ = ["edge_softmax", "functions", "load_partition_book"]


def load_partition_book(json_path: str, part: int) -> Any:
    """DGL's partition book of a partitioning, as ``dgl.distributed`` gives it."""
    book, *_ = dgl.distributed.load_partition_book(json_path, part)
    return book


def edge_softmax(graph: Any, logits: Any, eids: Any, norm_by: str) -> Any:
    """``dgl.ops.edge_softmax`` of a DGL graph."""
    return dgl.ops.edge_softmax(graph, logits, eids=eids, norm_by=norm_by)
