"""Maxima and minima of messages, and of the nodes of graphs: NaN, infinities, zeros and equal numbers among them."""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import torch

from tests.parity.cases_pyg import graph_index
from tests.parity.pyg_specs import pyg_nn
from tests.support.graphs import Graph
from tests.support.worker import numpy

WIDTH, GRAPHS = 4, 5
FEW = (0.0, -1.0, 2.0, math.inf, -math.inf, math.nan)
SHARES = (0.3, 0.3, 0.334, 0.03, 0.03, 0.006)

# what is reduced of rows of sources, of destinations, and of edges
MESSAGES: dict[str, Callable[[Any, Any, Any], torch.Tensor]] = {
    "sources": lambda j, i, e: j,
    "both ends": lambda j, i, e: j + i,
    "edges": lambda j, i, e: e,
    "weighted": lambda j, i, e: j * e,
    "in blocks": lambda j, i, e: j.flip(-1),
    "values": lambda j, i, e: (j.flip(-1) + 0).data + e,
}


def draw(graph: Graph, dtype: str) -> dict[str, np.ndarray]:
    """Rows of nodes and edges, gradients and graphs of nodes. The first column is of sources that win with 0."""
    rng = np.random.default_rng(71)
    x, e = (rng.choice(FEW, (n, WIDTH), p=SHARES).astype(dtype) for n in (graph.num_nodes, len(graph.src)))
    x[:, 0] = rng.choice([0.0, -1.0], graph.num_nodes)
    e[:, 0] = rng.choice([0.5, 1.0], len(graph.src))
    grad = rng.integers(1, 9, (graph.num_nodes, WIDTH)).astype(dtype)
    return {"x": x, "e": e, "grad": grad, "batch": rng.choice([0, 1, 2, 4], graph.num_nodes)}


def of_messages(edge_index: Any, message: str, op: str, columns: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The result, that without gradients, and the gradients of nodes and edges."""
    from torch_geometric.utils import scatter

    x, e = (torch.from_numpy(columns[name].copy()).requires_grad_() for name in ("x", "e"))

    def reduced() -> torch.Tensor:
        row, col = edge_index
        if message == "edges":
            return scatter(e, col, 0, len(x), op)
        return scatter(MESSAGES[message](x[row], x[col], e), col, 0, len(x), op)

    out = reduced()
    out.backward(torch.from_numpy(columns["grad"]))
    with torch.no_grad():
        plain = reduced()
    return numpy([out, plain, *(torch.zeros_like(t) if t.grad is None else t.grad for t in (x, e))])


def of_nodes(op: str, batched: bool, columns: dict[str, np.ndarray], share: float = 1.0) -> list[np.ndarray]:
    """The same of nodes of graphs; of all nodes, without gradients of maxima that several have."""
    x = torch.from_numpy(columns["x"].copy()).requires_grad_()
    if batched:
        pool = getattr(pyg_nn().aggr, f"{op.capitalize()}Aggregation")()
        out = pool(x, torch.from_numpy(columns["batch"]), dim_size=GRAPHS)
    else:
        out = pyg_nn().global_max_pool(x, None)
    out.backward(torch.from_numpy(columns["of graphs"][: len(out)] * np.asarray(share, columns["x"].dtype)))
    assert x.grad is not None
    return numpy([out, x.grad] if batched else [out])


def of_messages_on_worker(part: dict[str, Any], message: str, op: str, columns: Any) -> list[np.ndarray]:
    return of_messages(graph_index(part), message, op, columns)


def of_nodes_on_worker(part: dict[str, Any], op: str, batched: bool, columns: Any, share: float) -> list[np.ndarray]:
    edge_index = graph_index(part)
    found = of_nodes(op, batched, columns, share)
    del edge_index
    return found
