"""Gradients of edge expressions computed by owners of sources (push) and by readers (pull): the same numbers, and who
computes follows from what would travel."""

from __future__ import annotations

import time
from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_exchange, cases_expression
from tests.parity.attention_forms import FORMS, form
from tests.parity.expressions import E, Leaf, P, U, V, compare
from tests.support.graphs import Graph, close, make
from tests.support.pool import Failure, Pool
from tests.support.sessions import Workers

KINDS = ("random", "empty_worker", "no_edges_between", "one_node", "no_edges", "hub")


def pushed(workers: Workers, *args: Any, **options: Any) -> None:
    """What ``compare`` does, pushed wherever a program can be."""

    class Pushing(Workers):
        def run(self, case: Any, *given: Any, **common: Any) -> list[Any]:
            assert case is cases_expression.expression
            return super().run(cases_exchange.expression, *given, exchange="push", **common)

    compare(Pushing(workers.pool, workers.world, workers.transport), *args, **options)


@pytest.mark.parametrize("shape", [(4, 32), (3, 16), (4, 47), (1, 1)], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", FORMS)
def test_forms(workers: Workers, name: str, shape: tuple[int, int]) -> None:
    """Among them one with an edge term, which has to be pulled."""
    leaves, program = form(name, *shape)
    for n, kind in enumerate(KINDS if shape == (3, 16) else ("random",)):
        graph = make(kind, workers.world, seed=91 + n)
        for dtype in ("float32", "float64") if n == 0 else ("float64",):
            pushed(workers, graph, leaves, program, "sum", dtype, loose=20.0)


def test_some_gradients_are_not_wanted(workers: Workers) -> None:
    graph = make("random", workers.world, seed=92)
    leaves, program = form("additive", 3, 16)
    for needs in ([True, False, True], [False, True, True], [False, False, True], [True, True, False]):
        pushed(workers, graph, leaves, program, "sum", needs=needs)


def test_a_mean_of_gates(workers: Workers) -> None:
    """No softmax, a parameter, the mean: each row counts its in-edges, which its worker alone knows."""
    leaves = [Leaf(U, (4, 8)), Leaf(V, (4, 8)), Leaf(P, (8,))]
    gate = ["sigmoid", ["mul", ["dot", ["load", U, 0], ["load", V, 1]], ["param", 2]]]
    for kind in ("random", "hub"):
        pushed(workers, make(kind, workers.world, seed=93), leaves, ["mul", ["load", U, 0], gate], "mean")
    graph, edge = make("random", workers.world, seed=93), Leaf(E, (4, 1))
    pushed(workers, graph, [*leaves, edge], ["mul", ["mul", ["load", U, 0], gate], ["load", E, 3]], "sum")


@pytest.mark.parametrize("heads, width", [(4, 32), (1, 47)])
def test_an_unedited_layer(workers: Workers, heads: int, width: int) -> None:
    """DGL's GATConv with gradients pushed, against DGL on the whole graph."""
    graph = make("random", workers.world, seed=94)
    rng = np.random.default_rng(94)
    x = rng.standard_normal((graph.num_nodes, 12)).astype(np.float32)
    grad = rng.standard_normal((graph.num_nodes, heads, width)).astype(np.float32)
    torch.manual_seed(5)
    conv = dgl.nn.GATConv(12, width, heads, allow_zero_in_degree=True)
    rows = torch.from_numpy(x.copy()).requires_grad_()
    out = conv(graph.of_dgl(), rows)
    out.backward(torch.from_numpy(grad))
    results = workers.run(cases_exchange.layer, graph.shares(x=x, grad=grad), exchange="push", heads=heads, width=width)
    for rank, found in enumerate(results):
        close(found["out"], out.detach().numpy()[graph.rows(rank)], "out", 20)
        close(found["x"], rows.grad.numpy()[graph.rows(rank)], "gradient of x", 20)
        for got, p in zip(found["grads"], conv.parameters()):
            close(got, p.grad.numpy(), "gradient of a parameter", 20)
    if workers.world > 1:
        assert sum(found["pushed"] for found in results) > 0


def fans(many: int = 900) -> Graph:
    """Rank 0 owns many sources that one node of rank 1 reads; many nodes of rank 1 read one of rank 0."""
    start = np.array([0, many + 1, 2 * many + 2], dtype=np.int64)
    into_one = np.arange(many), np.full(many, 2 * many + 1)
    from_one = np.full(many, 2 * many + 1), np.arange(many)  # and the other way round between the same ranks
    src, dst = (np.concatenate(ends).astype(np.int64) for ends in zip(into_one, from_one))
    return Graph(2 * many + 2, src, dst, start)


def test_each_pair_has_its_way(pool: Pool) -> None:
    """Rows of destinations travel where they are few, rows of sources where these are; and so many bytes of each."""
    width, float_bytes = 16, 8
    for transport in ("shm", "tcp"):
        two = Workers(pool, 2, transport)
        graph, many = fans(), 900
        u = np.random.default_rng(95).standard_normal((graph.num_nodes, width))
        results = two.run(cases_exchange.attention, graph.shares(u=u), exchanges=["pull", *2 * ["auto"], *2 * ["push"]])
        for rank, (pull, first_auto, auto, first_push, push) in enumerate(results):
            for other in (first_auto, auto, first_push, push):
                for a, b in zip(pull["values"], other["values"]):
                    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
            peer = 1 - rank
            source, gradient = (width + 1) * float_bytes, (width + 1) * float_bytes
            # Out: gradient, score, three numbers of the softmax. Back: gradient of the score.
            there, back = (width + 1 + 3) * float_bytes, float_bytes
            mine, theirs = (many, 1) if rank == 0 else (1, many)  # own sources the peer reads, and the peer's own
            # Pulled: own sources go out, gradients of the peer's go to it.
            assert list(pull["backward"][peer]) == [mine * source, theirs * gradient, 0]
            # Pushed: rows of own destinations go out, and what they get of the peer's comes home.
            reached, served = (many, 1) if rank == 0 else (1, many)
            assert list(push["backward"][peer]) == [0, served * back, reached * there]
            # By pair: into the one node of rank 1, rank 0 computes; out of it, rank 0 too, since it reads.
            want = [0, gradient + back, 0] if rank == 0 else [source, 0, there]
            assert list(auto["backward"][peer]) == want
            # Forward: rows of sources, or scores of destinations out and their part of the result back, with the
            # softmax's reference and sum.
            part = (width + 2) * float_bytes
            assert list(pull["forward"][peer]) == [mine * source, 0, 0]
            assert list(push["forward"][peer]) == [0, served * part, reached * float_bytes]
            assert list(auto["forward"][peer]) == ([0, part, 0] if rank == 0 else [source, 0, float_bytes])
            # The first time at a price, readers tell owners their edges: 4 bytes each.
            edges = [0, many] if rank == 0 else [many, many]
            for first, then, told in zip((first_auto, first_push), (auto, push), edges):
                assert list(first["backward"][peer] - then["backward"][peer]) == [0, 4 * told, 0]
            assert pull["structure"] <= auto["structure"] <= push["structure"] <= pull["structure"] + 64 * 1024


def test_settings_that_do_not_exist(two: Workers) -> None:
    graph = make("random", 2, seed=96)
    u = np.ones((graph.num_nodes, 3), np.float32)
    for message in two.run(cases_exchange.refused, graph.shares(u=u)):
        assert message == "sar.Config.exchange is 'shove': it is one of 'auto', 'pull', 'push'"


@pytest.mark.parametrize("settings", [("push", "auto"), ("pull", "push")])
def test_ranks_that_differ(two: Workers, settings: tuple[str, str]) -> None:
    """A setting that is not the same everywhere ends the run on every rank, at once and with a reason."""
    graph = make("random", 2, seed=97)
    u = np.random.default_rng(97).standard_normal((graph.num_nodes, 4)).astype(np.float32)
    given = graph.shares(u=u, ranks={"exchange": settings})
    begin = time.monotonic()
    failures = two.attempt(cases_exchange.differing, given)
    assert time.monotonic() - begin < 45  # the deadline of an operation is 60 s
    assert all(isinstance(f, Failure) for f in failures)
    reasons = " ".join(str(f) for f in failures)
    assert "different settings of exchange" in reasons, reasons
