"""Message passing against DGL on the whole graph: values and all gradients, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity import cases_message
from tests.parity.message_oracle import Call, check_builtins
from tests.support.graphs import KINDS, Graph, make
from tests.support.sessions import Workers

MESSAGES = ["copy_u", "copy_e"] + [
    f"{a}_{op}_{b}" for op in ("add", "sub", "mul", "div", "dot") for a in "uve" for b in "uve" if a != b
]
FIELDS = {"u": "x", "v": "y", "e": "w"}


def call(message: str, reduce: str | None) -> Call:
    return message, [FIELDS[side] for side in message.split("_") if side in FIELDS], reduce


def coarse(rng: np.random.Generator, rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different numbers, none of them 0: many are equal, and all divide."""
    return (rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 4.0], (rows, *shape))).astype(dtype)


EVERY = [("random", "float64"), ("empty_worker", "float32"), ("one_node", "float64"), ("hub", "float32")]
EVERY += [pytest.param(kind, "float32", marks=pytest.mark.full) for kind in ("random", "one_node")]
EVERY += [pytest.param(kind, "float64", marks=pytest.mark.full) for kind in ("empty_worker", "hub")]


@pytest.mark.parametrize(("kind", "dtype"), EVERY)
def test_every_builtin(few: Workers, kind: str, dtype: str) -> None:
    """All messages with all reducers, half of the messages on graphs of special kinds; many messages are equal, so max
    and min have ties."""
    graph = make(kind, few.world)
    rng = np.random.default_rng(1)
    columns = {name: coarse(rng, graph.num_nodes, (2, 3), dtype) for name in ("x", "y")}
    weights = {"w": coarse(rng, len(graph.src), (2, 3), dtype)}
    calls = [
        call(m, reduce)
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
    calls = [
        call(m, reduce)
        for m in ("u_add_v", "u_mul_v", "u_sub_e", "e_div_u", "e_mul_u", "v_mul_u")
        for reduce in ("sum", "max", None)
    ]
    check_builtins(few, graph, calls, columns, weights)


WEIGHTS = {  # name: (feature dimensions of u, of e)
    "scalar": ((5,), ()),
    "column": ((5,), (1,)),
    "heads": ((3, 4), (3, 1)),
    "head_scalar": ((3, 4), (1, 1)),
    "head_column": ((3, 4), ()),
    "elementwise": ((6,), (6,)),
    "wider": ((1,), (6,)),
    "by_column": ((3, 4), (4,)),
    "flat": ((), ()),
}


def compare(
    workers: Workers,
    graph: Graph,
    message: str,
    reduce: str,
    u: np.ndarray,
    e: np.ndarray | None = None,
    **options: Any,
) -> None:
    check_builtins(workers, graph, [call(message, reduce)], {"x": u}, {} if e is None else {"w": e}, **options)


def alone(workers: Workers, graph: Graph, message: str, reduce: str, u: np.ndarray, edges: Any) -> list[dict[str, Any]]:
    """What the workers find, with u as the gradient of the result."""
    upstream = [[u[graph.rows(rank)]] for rank in range(graph.world)]
    given = graph.shares(columns={"x": u}, edges={"weights": edges}, ranks={"upstream": upstream})
    return [found for (found,) in workers.run(cases_message.builtins, given, calls=[call(message, reduce)])]


def features(graph: Graph, dims: tuple[int, ...], dtype: str, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((graph.num_nodes, *dims)).astype(dtype)


def weights(graph: Graph, dims: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((len(graph.src), *dims)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 47])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_copy_u(workers: Workers, kind: str, reduce: str, width: int, dtype: str) -> None:
    graph = make(kind, workers.world)
    compare(workers, graph, "copy_u", reduce, features(graph, (width,), dtype))


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_u_mul_e(workers: Workers, kind: str, reduce: str) -> None:
    graph = make(kind, workers.world)
    dtype = "float32" if reduce == "sum" else "float64"
    compare(workers, graph, "u_mul_e", reduce, features(graph, (3, 4), dtype), weights(graph, (3, 1), dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shapes", WEIGHTS, ids=str)
def test_shapes_of_weights(workers: Workers, shapes: str, dtype: str) -> None:
    graph = make("random", workers.world, seed=3)
    of_u, of_e = WEIGHTS[shapes]
    compare(workers, graph, "u_mul_e", "sum", features(graph, of_u, dtype), weights(graph, of_e, dtype))


@pytest.mark.parametrize("needs", [(True, False), (False, True), (False, False)], ids=str)
def test_only_some_gradients(workers: Workers, needs: tuple[bool, bool]) -> None:
    graph = make("empty_worker", workers.world, seed=4)
    compare(
        workers,
        graph,
        "u_mul_e",
        "mean",
        features(graph, (6,), "float64"),
        weights(graph, (), "float64"),
        needs=[needs] * graph.world,
    )


@pytest.mark.parametrize("message", ["copy_u", "u_mul_e"])
def test_a_gradient_that_one_rank_alone_needs(workers: Workers, message: str) -> None:
    """Only rank 0's rows need a gradient: the others take part in backward, and it is right."""
    graph = make("random", workers.world, seed=5)
    e = weights(graph, (), "float64") if message == "u_mul_e" else None
    needs = [(rank == 0, False) for rank in range(graph.world)]
    compare(workers, graph, message, "sum", features(graph, (4,), "float64"), e, needs=needs)


def test_strides(workers: Workers) -> None:
    graph = make("random", workers.world, seed=6)
    compare(workers, graph, "copy_u", "mean", features(graph, (5,), "float32"), strided=True)


def test_nan_is_carried(workers: Workers) -> None:
    graph = make("random", workers.world, seed=8)
    u = features(graph, (5,), "float32")
    u[graph.src[0], 2] = np.nan
    u[graph.src[1], 3] = np.inf
    compare(workers, graph, "copy_u", "sum", u)


def test_a_repeated_run_agrees_to_the_bit(workers: Workers) -> None:
    graph = make("random", workers.world, seed=9)
    u, e = features(graph, (3, 4), "float32"), weights(graph, (3, 1), "float32")
    first, second = (alone(workers, graph, "u_mul_e", "mean", u, {"w": e}) for _ in range(2))
    for a, b in zip(first, second):
        assert np.array_equal(a["out"], b["out"]) and np.array_equal(a["nodes"]["x"], b["nodes"]["x"])
        assert np.array_equal(a["edges"]["w"], b["edges"]["w"])


@pytest.mark.parametrize("dims", [(2, 8), (256,), (3, 1, 5)], ids=str)
def test_feature_dimensions(workers: Workers, dims: tuple[int, ...]) -> None:
    graph = make("random", workers.world, seed=20)
    compare(workers, graph, "copy_u", "sum", features(graph, dims, "float32"))


def test_width_zero(workers: Workers) -> None:
    graph = make("random", workers.world, seed=21)
    empty = features(graph, (0,), "float32")
    for rank, found in enumerate(alone(workers, graph, "copy_u", "sum", empty, {})):
        assert found["out"].shape == found["nodes"]["x"].shape == empty[graph.rows(rank)].shape
