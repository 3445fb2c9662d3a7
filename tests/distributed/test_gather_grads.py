"""Gradients summed over the workers."""

from __future__ import annotations

from tests.parity import cases_gradients
from tests.support.graphs import make
from tests.support.sessions import Workers


def test_sums(workers: Workers) -> None:
    graph = make("random", workers.world, seed=60)
    workers.run(cases_gradients.sums, [{"part": graph.part(r)} for r in range(workers.world)])


def test_backward_twice(two: Workers) -> None:
    graph = make("random", 2, seed=61)
    two.run(cases_gradients.backward_twice, [{"part": graph.part(r)} for r in range(2)])
