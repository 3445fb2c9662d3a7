"""update_all against DGL on the whole graph: outputs and gradients, element by element."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_update_all
from tests.support.graphs import KINDS, Graph, close, make
from tests.support.sessions import Workers

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


def oracle(
    graph: Graph, message: str, reduce: str, u: np.ndarray, e: np.ndarray | None, rng: np.random.Generator
) -> dict[str, Any]:
    """DGL on the whole graph."""
    whole = graph.of_dgl()
    x = torch.from_numpy(u.copy()).requires_grad_()
    w = None if e is None else torch.from_numpy(e.copy()).requires_grad_()
    whole.ndata["h"] = x
    if w is not None:
        whole.edata["w"] = w
    send = dgl.function.copy_u("h", "m") if message == "copy_u" else dgl.function.u_mul_e("h", "w", "m")
    whole.update_all(send, getattr(dgl.function, reduce)("m", "out"))
    out = whole.ndata["out"]
    upstream = rng.standard_normal(tuple(out.shape)).astype(u.dtype)
    out.backward(torch.from_numpy(upstream))
    degrees = [whole.in_degrees().numpy(), whole.out_degrees().numpy()]
    assert x.grad is not None
    return {
        "out": out.detach().numpy(),
        "grad": upstream,
        "u": x.grad.numpy(),
        "e": None if w is None or w.grad is None else w.grad.numpy(),
        "degrees": degrees,
    }


def compare(
    workers: Workers,
    graph: Graph,
    message: str,
    reduce: str,
    u: np.ndarray,
    e: np.ndarray | None = None,
    needs: tuple[bool, bool] = (True, True),
    strided: bool = False,
) -> None:
    rng = np.random.default_rng(7)
    expected = oracle(graph, message, reduce, u, e, rng)
    arguments = graph.shares(u=u, grad=expected["grad"], edges={"e": e})
    results = workers.run(cases_update_all.raw, arguments, message=message, reduce=reduce, needs=needs, strided=strided)
    for rank, result in enumerate(results):
        rows, edges = graph.rows(rank), graph.edges(rank)
        close(result["out"], expected["out"][rows], f"output of rank {rank}")
        for side in (0, 1):
            assert np.array_equal(result["degrees"][side], expected["degrees"][side][rows])
        if needs[0]:
            close(result["u"], expected["u"][rows], f"gradient of u, rank {rank}")
        else:
            assert result["u"] is None
        if e is not None and needs[1]:
            close(result["e"], expected["e"][edges], f"gradient of e, rank {rank}")


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
    compare(workers, graph, "u_mul_e", "mean", features(graph, (6,), "float64"), weights(graph, (), "float64"), needs)


@pytest.mark.parametrize("message", ["copy_u", "u_mul_e"])
def test_a_gradient_that_one_rank_alone_needs(workers: Workers, message: str) -> None:
    """Only rank 0's rows need a gradient: the others take part in backward, and it is right."""
    graph = make("random", workers.world, seed=5)
    u, rng = features(graph, (4,), "float64"), np.random.default_rng(7)
    e = weights(graph, (), "float64") if message == "u_mul_e" else None
    expected = oracle(graph, message, "sum", u, e, rng)
    needs = [(rank == 0, False) for rank in range(graph.world)]
    arguments = graph.shares(u=u, grad=expected["grad"], edges={"e": e}, ranks={"needs": needs})
    results = workers.run(cases_update_all.raw, arguments, message=message, reduce="sum")
    assert all(r["requires_grad"] for r in results)
    assert all(r["u"] is None for r in results[1:])
    close(results[0]["u"], expected["u"][graph.rows(0)], "gradient of u on rank 0")


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
    arguments = graph.shares(u=u, grad=u, edges={"e": e})
    first, second = (
        workers.run(cases_update_all.raw, arguments, message="u_mul_e", reduce="mean", needs=(True, True))
        for _ in range(2)
    )
    for a, b in zip(first, second):
        assert all(np.array_equal(a[key], b[key]) for key in ("out", "u", "e"))


@pytest.mark.parametrize("dims", [(2, 8), (256,), (3, 1, 5)], ids=str)
def test_feature_dimensions(workers: Workers, dims: tuple[int, ...]) -> None:
    graph = make("random", workers.world, seed=20)
    compare(workers, graph, "copy_u", "sum", features(graph, dims, "float32"))


def test_width_zero(workers: Workers) -> None:
    graph = make("random", workers.world, seed=21)
    empty = features(graph, (0,), "float32")
    arguments = graph.shares(u=empty, grad=empty, e=None)
    results = workers.run(cases_update_all.raw, arguments, message="copy_u", reduce="sum", needs=(True, False))
    for rank, result in enumerate(results):
        assert result["out"].shape == result["u"].shape == empty[graph.rows(rank)].shape
