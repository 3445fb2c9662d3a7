"""Messages, and columns of nodes and edges, on the whole graph, for the tests of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Tuple, Union

import dgl
import numpy as np
import torch

from tests.parity import cases_message
from tests.parity.expressions import first_of_equals
from tests.support.graphs import Graph, close
from tests.support.sessions import Workers

Call = Tuple[str, "list[str]", Union[str, None]]
"""A built-in message, the columns that it is of, and its reducer; None: it stays on the edges."""


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


def check_builtins(
    workers: Workers,
    graph: Graph,
    calls: list[Call],
    columns: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    needs: Sequence[tuple[bool, bool]] = (),
    **options: Any,
) -> None:
    """Built-in messages against DGL on the whole graph: results and all gradients.

    :param needs: of each rank, whether its columns of nodes and of edges need gradients; all do
    """
    needs = needs or [(True, True)] * graph.world
    whole_graph, nodes, edges = whole(graph, columns, weights)
    rng = np.random.default_rng(5)
    expected, upstream = [], []
    for message, fields, reduce in calls:
        with whole_graph.local_scope():
            send = getattr(dgl.function, message)(*fields, "m")
            if reduce in (None, "max", "min"):
                whole_graph.apply_edges(send)
                out = whole_graph.edata["m"]
            if reduce in ("max", "min"):
                whole_graph.edata["m"] = first_of_equals(out, reduce)
                whole_graph.update_all(dgl.function.copy_e("m", "m"), getattr(dgl.function, reduce)("m", "out"))
                out = whole_graph.dstdata["out"].to(out.dtype)
            elif reduce is not None:
                whole_graph.update_all(send, getattr(dgl.function, reduce)("m", "out"))
                out = whole_graph.dstdata["out"]
        grad = rng.standard_normal(tuple(out.shape)).astype(str(out.dtype)[6:])
        out.backward(torch.from_numpy(grad))
        upstream.append(grad)
        expected.append(
            {
                "out": out.detach().numpy(),
                "nodes": cases_message.gradients(nodes),
                "edges": cases_message.gradients(edges),
            }
        )
    arguments = graph.shares(columns=columns, edges={"weights": weights}, ranks={"needs": list(needs)})
    for rank, given in enumerate(arguments):
        given["upstream"] = [
            g[graph.edges(rank) if call[2] is None else graph.rows(rank)] for g, call in zip(upstream, calls)
        ]
    for rank, results in enumerate(workers.run(cases_message.builtins, arguments, calls=calls, **options)):
        for call, got, wanted in zip(calls, results, expected):
            where = graph.edges(rank) if call[2] is None else graph.rows(rank)
            close(got["out"], wanted["out"][where], f"{call}: rank {rank}")
            assert got["requires_grad"] == any(map(any, needs))
            given = {kind: wanted[kind] if needed else {} for kind, needed in zip(("nodes", "edges"), needs[rank])}
            assert all(set(got[kind]) == set(given[kind]) for kind in given), "a gradient that nobody needs"
            same(graph, rank, got, given, str(call))
