"""Gradients summed while backward runs: the same bits as afterwards."""

from __future__ import annotations

import pytest

from tests.parity import cases_gradients
from tests.support.graphs import make
from tests.support.sessions import Workers


@pytest.mark.parametrize("bucket_bytes", [1, 4096, 1 << 20])
def test_same_bits(workers: Workers, bucket_bytes: int) -> None:
    graph = make("random", workers.world, seed=60)
    arguments = [{"part": graph.part(r)} for r in range(workers.world)]
    for message in workers.run(cases_gradients.same_bits, arguments, bucket_bytes=bucket_bytes):
        assert "after close" in message


def test_backward_twice(two: Workers) -> None:
    graph = make("random", 2, seed=61)
    for message in two.run(cases_gradients.backward_twice, [{"part": graph.part(r)} for r in range(2)]):
        assert "call gather() after each backward" in message
