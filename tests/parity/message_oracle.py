"""Columns of nodes and edges on the whole graph, for the tests of messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.parity import cases_message
from tests.support.graphs import Graph, close


def whole(graph: Graph, columns: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> tuple[Any, ...]:
    """The same as ``cases_message.filled`` in DGL, on the whole graph."""
    made = graph.of_dgl()
    nodes = {name: cases_message.leaf(array) for name, array in columns.items()}
    edges = {name: cases_message.leaf(array) for name, array in weights.items()}
    made.ndata.update(nodes)
    made.edata.update(edges)
    return made, nodes, edges


def same(graph: Graph, rank: int, got: dict[str, Any], expected: dict[str, Any], what: str, loose: float = 1.0) -> None:
    """Compares the gradients of columns."""
    for kind, mine in (("nodes", graph.rows(rank)), ("edges", graph.edges(rank))):
        for name, grad in expected[kind].items():
            close(got[kind][name], grad[mine], f"{what}: gradient of {name} of {kind}, rank {rank}", loose)
