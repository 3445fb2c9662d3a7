"""What looks at the whole graph is refused in one way, or answered right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.parity import cases_refused as cases
from tests.support.graphs import close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")


@pytest.mark.parametrize("which", ["torch", "pyg", "dgl"])
def test_refused(pool: Pool, which: str) -> None:
    """On one worker as on two, and on each of them: the same error, that names what was called and the way round."""
    found = []
    for world in (1, 2):
        graph = make("random", world, seed=90)
        found += Workers(pool, world, "shm").run(cases.said, graph.shares(), which=which)
    for name, (kind, called, instead) in found[0].items():
        assert kind == "WholeGraphError" and name in called and len(instead) > 20, f"{name}: {kind}: {called}"
        assert all(other[name] == found[0][name] for other in found), name


def test_answered(few: Workers) -> None:
    """Reads by an edge index that have an exact answer."""
    for kind in ("random", "empty_worker")[: few.world]:
        graph = make(kind, few.world, seed=91)
        rng = np.random.default_rng(92)
        x, y = rng.standard_normal((graph.num_nodes, 3)), rng.integers(0, 3, graph.num_nodes)
        index = torch.from_numpy(np.stack([graph.src, graph.dst]))
        whole = cases.answers(x, y, index)
        for rank, one in enumerate(few.run(cases.own_answers, graph.shares(x=x, y=y))):
            for where, mine in (("edges", graph.edges(rank)), ("nodes", graph.rows(rank))):
                for name, value in whole[where].items():
                    close(one[where][name], value[mine], f"{name}, rank {rank}", 10)
            np.testing.assert_allclose(one["homophily"], whole["homophily"], rtol=1e-6)
