"""Gradients summed over the workers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import cases_gradients
from tests.support.graphs import make
from tests.support.pool import Failure
from tests.support.sessions import Workers


def test_sums(workers: Workers) -> None:
    graph = make("random", workers.world, seed=60)
    workers.run(cases_gradients.sums, graph.shares())


def test_backward_twice(two: Workers) -> None:
    graph = make("random", 2, seed=61)
    two.run(cases_gradients.backward_twice, graph.shares())


def test_sync_sends_buffers(few: Workers) -> None:
    found = few.run(cases_gradients.synced, lazy="after")
    for rank, tensors in enumerate(found):
        *same, own = tensors
        assert own.tolist() == [rank]
        assert all(np.array_equal(a, b) for a, b in zip(same, found[0]))
        assert same[-2].tolist() == [1, 1] and int(same[-1]) == 5


@pytest.mark.parametrize("lazy", ["all", "some"])
def test_sync_of_lazy_modules(two: Workers, lazy: str) -> None:
    words = "Run one forward on every worker first, or call sync_params after it"
    refused(two, cases_gradients.synced, words, lazy=lazy)


def test_a_parameter_that_one_rank_froze(two: Workers) -> None:
    words = "first.bias: some workers want gradients (requires_grad) and others do not"
    refused(two, cases_gradients.frozen, words, name="first.bias")


def test_rows_of_one_worker_in_a_buffer(two: Workers) -> None:
    refused(two, cases_gradients.rows_in_a_buffer, "differ in the names, shapes or dtypes of their buffers")


def refused(workers: Workers, case: object, words: str, **given: object) -> None:
    """Every rank raises the error."""
    for failure in workers.attempt(case, **given):
        assert isinstance(failure, Failure) and failure.kind == "ValueError" and words in failure.message, failure
