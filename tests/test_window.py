"""The window of remote rows: the same numbers however small it is, never exceeded, refused with what would do."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import Workers
from graphs import make


@pytest.mark.parametrize("width", [1, 300])
def test_a_small_window(workers: Workers, width: int) -> None:
    if workers.world == 1:
        pytest.skip("one worker fetches nothing")
    graph = make("random", workers.world, seed=40)
    u = np.random.default_rng(41).standard_normal((graph.num_nodes, width)).astype("float32")
    arguments = [{"part": graph.part(r), "u": u[graph.rows(r)]} for r in range(graph.world)]
    roomy = workers.run("small_window", arguments, window=16 << 20)
    for result in roomy:
        assert result["minimum"] > 64 and str(result["minimum"]) in result["message"]
    least = roomy[0]["minimum"]  # the smallest the error names is one that works
    tight = workers.run("small_window", arguments, window=least)
    for a, b in zip(roomy, tight):
        assert b["window"]["limit"] == least
        assert 0 < b["window"]["peak"] <= least, b["window"]
        np.testing.assert_allclose(b["out"], a["out"], rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(b["x"], a["x"], rtol=1e-5, atol=1e-3)
