"""Links that ``torch.distributed`` carries."""

from __future__ import annotations

import numpy as np
import pytest

from tests.distributed import cases_transport
from tests.support.pool import Pool


@pytest.mark.parametrize("world", [2, 3])
def test_values_are_those_of_tcp(pool: Pool, world: int) -> None:
    own, carried = (pool.run(world, kind, cases_transport.results, [{}] * world, seed=7) for kind in ("tcp", "torch"))
    for rank, (mine, theirs) in enumerate(zip(own, carried)):
        assert (mine["kinds"], theirs["kinds"]) == (["tcp"], ["torch"])
        assert len(mine["numbers"]) == 8
        for name, numbers in mine["numbers"].items():
            np.testing.assert_array_equal(numbers, theirs["numbers"][name], f"{name} on rank {rank}")


def test_every_worker_has_to_use_it(pool: Pool) -> None:
    found = pool.attempt(2, "tcp", cases_transport.joins_unlike)
    pool.leave()
    assert found[0] == "ValueError: SAR_TRANSPORT=torch here and tcp on rank 1: set it on every worker, or on none"
    assert found[1].startswith("RendezvousError"), found
