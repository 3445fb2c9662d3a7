"""Columns of nodes and edges on the whole graph and in shares, for the tests of messages."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch

from tests.parity import cases_message
from tests.support.graphs import Graph, close


def whole(graph: Graph, columns: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> tuple[Any, ...]:
    """The same as ``cases_message.filled`` in DGL, on the whole graph."""
    made = dgl.graph((torch.from_numpy(graph.src), torch.from_numpy(graph.dst)), num_nodes=graph.num_nodes)
    nodes = {name: cases_message.leaf(array) for name, array in columns.items()}
    edges = {name: cases_message.leaf(array) for name, array in weights.items()}
    made.ndata.update(nodes)
    made.edata.update(edges)
    return made, nodes, edges


def shares(graph: Graph, columns: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """What each rank gets of the graph and its columns."""
    return [
        {
            "part": graph.part(rank),
            "columns": {k: v[graph.rows(rank)] for k, v in columns.items()},
            "weights": {k: v[graph.edges(rank)] for k, v in weights.items()},
        }
        for rank in range(graph.world)
    ]


def same(graph: Graph, rank: int, got: dict[str, Any], expected: dict[str, Any], what: str, loose: float = 1.0) -> None:
    """Compares the gradients of columns."""
    for kind, mine in (("nodes", graph.rows(rank)), ("edges", graph.edges(rank))):
        for name, grad in expected[kind].items():
            close(got[kind][name], grad[mine], f"{what}: gradient of {name} of {kind}, rank {rank}", loose)
