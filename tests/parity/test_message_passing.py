"""Message passing against DGL on the whole graph: values and all gradients, element by element."""

from __future__ import annotations

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_message
from tests.parity.expressions import first_of_equals
from tests.parity.message_oracle import same, whole
from tests.support.graphs import Graph, close, make
from tests.support.sessions import Workers

MESSAGES = ["copy_u", "copy_e"] + [
    f"{a}_{op}_{b}" for op in ("add", "sub", "mul", "div", "dot") for a in "uve" for b in "uve" if a != b
]
FIELDS = {"u": "x", "v": "y", "e": "w"}


def coarse(rng: np.random.Generator, rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different numbers, none of them 0: many are equal, and all divide."""
    return (rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 4.0], (rows, *shape))).astype(dtype)


def check_builtins(
    few: Workers,
    graph: Graph,
    calls: list[tuple[str, list[str], str | None]],
    columns: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
) -> None:
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
    arguments = graph.shares(columns=columns, edges={"weights": weights})
    for rank, given in enumerate(arguments):
        given["upstream"] = [
            g[graph.edges(rank) if call[2] is None else graph.rows(rank)] for g, call in zip(upstream, calls)
        ]
    for rank, results in enumerate(few.run(cases_message.builtins, arguments, calls=calls)):
        for call, got, wanted in zip(calls, results, expected):
            where = graph.edges(rank) if call[2] is None else graph.rows(rank)
            close(got["out"], wanted["out"][where], f"{call}: rank {rank}")
            same(graph, rank, got, wanted, str(call))


KINDS = [("random", "float64"), ("empty_worker", "float32"), ("one_node", "float64"), ("hub", "float32")]
KINDS += [pytest.param(kind, "float32", marks=pytest.mark.full) for kind in ("random", "one_node")]
KINDS += [pytest.param(kind, "float64", marks=pytest.mark.full) for kind in ("empty_worker", "hub")]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_every_builtin(few: Workers, kind: str, dtype: str) -> None:
    """All messages with all reducers, half of the messages on graphs of special kinds; many messages are equal, so max
    and min have ties."""
    graph = make(kind, few.world)
    rng = np.random.default_rng(1)
    columns = {name: coarse(rng, graph.num_nodes, (2, 3), dtype) for name in ("x", "y")}
    weights = {"w": coarse(rng, len(graph.src), (2, 3), dtype)}
    calls: list[tuple[str, list[str], str | None]] = [
        (m, [FIELDS[side] for side in m.split("_") if side in FIELDS], reduce)
        for m in (MESSAGES if kind == "random" else MESSAGES[::2])
        for reduce in ("sum", "mean", "max", "min", None)
    ]
    check_builtins(few, graph, calls, columns, weights)


SHAPES = [((4,), (1,)), ((1,), (4,)), ((2, 3), (3,)), ((2, 3), (2, 1)), ((), (3,)), ((2, 1, 3), (4, 1)), ((47,), (47,))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_broadcasting(few: Workers, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    graph = make("random", few.world, seed=2)
    rng = np.random.default_rng(2)
    columns = {name: coarse(rng, graph.num_nodes, shape, "float64") for name, shape in zip("xy", shapes)}
    weights = {"w": coarse(rng, len(graph.src), shapes[1], "float64")}
    calls: list[tuple[str, list[str], str | None]] = [
        (m, [FIELDS[side] for side in m.split("_") if side in FIELDS], reduce)
        for m in ("u_add_v", "u_mul_v", "u_sub_e", "e_div_u", "e_mul_u", "v_mul_u")
        for reduce in ("sum", "max", None)
    ]
    check_builtins(few, graph, calls, columns, weights)
