"""The window of remote rows: the same numbers however small it is, never exceeded, refused with what would do."""

from __future__ import annotations

import numpy as np
import pytest

import sar
from sar._engine import abi
from tests.distributed import cases_window
from tests.support.graphs import make
from tests.support.pool import Pool
from tests.support.sessions import Workers

MIB = 1 << 20


@pytest.mark.parametrize("width", [1, 300])
def test_the_same_numbers(workers: Workers, width: int) -> None:
    """Windows set one after the other, each kept to the byte from then on, whatever the one before held."""
    if workers.world == 1:
        pytest.skip("one worker fetches nothing")
    graph = make("random", workers.world, seed=40)
    u = np.random.default_rng(41).standard_normal((graph.num_nodes, width)).astype("float32")
    arguments = graph.shares(u=u)
    refused = workers.run(cases_window.too_small, arguments)
    least = refused[0][1]  # the smallest the error names is one that works
    assert all(minimum == least > 64 and str(least) in message for message, minimum in refused)
    sizes = [16 * MIB, 8 * MIB, least, 8 * MIB + 4096 * 5 + 1]
    for first, *later in workers.run(cases_window.windows, arguments, sizes=sizes):
        for result, size in zip([first, *later], sizes):
            window = result["window"]
            assert window["limit"] == size
            assert 0.5 * size < window["live"] <= window["peak"] <= size, window
            np.testing.assert_array_equal(result["sum"], first["sum"])
            np.testing.assert_array_equal(result["attention"], first["attention"])
            np.testing.assert_allclose(result["sum_grad"], first["sum_grad"], rtol=1e-5, atol=1e-3)
            np.testing.assert_allclose(result["attention_grad"], first["attention_grad"], rtol=1e-5, atol=1e-5)


def test_sized_by_the_engine(pool: Pool) -> None:
    """4 MiB for what is small, more for a larger graph, and never more than ``sar plan`` says."""
    for world, transport in ((3, "shm"), (3, "tcp")):
        few, many = make("random", world, seed=42), 17_000
        start = np.array([0, 10, 10 + many, 10 + many], dtype=np.int64)  # the last worker owns none
        none = np.zeros(0, np.int64)
        arguments = [{"part": few.part(r), "larger": {"start": start, "src": none, "dst": none}} for r in range(world)]
        for found in pool.run(world, transport, cases_window.by_itself, arguments):
            wanted = [4 * MIB, 16 * MIB, 3 * MIB, 16 * MIB]
            assert [window["limit"] for window in found] == wanted
            assert all(window["peak"] <= window["limit"] for window in found)
    for nodes, window in ((20, 4 * MIB), (3 * many, 16 * MIB)):
        plan = sar.estimate_memory(None, ["sage:8"], in_features=4, num_nodes=nodes, num_edges=10, parts=3)
        assert all(e.window == window for e in plan)
    assert sar.estimate_memory(None, ["bn"], in_features=4, num_nodes=9, parts=3, window_bytes=77)[0].window == 77
    assert abi.default_window(8, 7_500) == 4 * MIB
