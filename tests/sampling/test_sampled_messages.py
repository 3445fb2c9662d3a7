"""What reads edge data on sampled blocks gives what it gives on blocks that DGL makes of the same edges."""

from __future__ import annotations

import numpy as np

from tests.sampling import cases_sampled_messages
from tests.sampling.cases_sampled_messages import KINDS
from tests.support.graphs import close, make
from tests.support.sessions import Workers


def test_messages_and_layers(two: Workers) -> None:
    graph = make("random", two.world, seed=8)
    rng = np.random.default_rng(9)
    weights = rng.random((len(graph.src), 1)).astype(np.float32)
    kinds = rng.integers(0, KINDS, len(graph.src))
    seeds = [np.arange(graph.num_nodes)[graph.rows(rank)][:20] for rank in range(two.world)]
    arguments = graph.shares({"weights": weights, "kinds": kinds}, {"seeds": seeds})
    results = two.run(cases_sampled_messages.on_blocks, arguments)
    assert all(results)
    for result in results:
        for one in result:
            for what, expected in one["twin"].items():
                assert (expected is None) == (one["ours"][what] is None), (one["name"], what)
                if expected is not None:
                    close(one["ours"][what], expected, f"{one['name']}: {what}", loose=3)
