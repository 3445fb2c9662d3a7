"""Message passing against DGL on the whole graph: values and all gradients, element by element."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity.message_oracle import Call, check_builtins
from tests.support.graphs import make
from tests.support.sessions import Workers

MESSAGES = ["copy_u", "copy_e"] + [
    f"{a}_{op}_{b}" for op in ("add", "sub", "mul", "div", "dot") for a in "uve" for b in "uve" if a != b
]
FIELDS = {"u": "x", "v": "y", "e": "w"}


def coarse(rng: np.random.Generator, rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different numbers, none of them 0: many are equal, and all divide."""
    return (rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 4.0], (rows, *shape))).astype(dtype)


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
    calls: list[Call] = [
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
    calls: list[Call] = [
        (m, [FIELDS[side] for side in m.split("_") if side in FIELDS], reduce)
        for m in ("u_add_v", "u_mul_v", "u_sub_e", "e_div_u", "e_mul_u", "v_mul_u")
        for reduce in ("sum", "max", None)
    ]
    check_builtins(few, graph, calls, columns, weights)
