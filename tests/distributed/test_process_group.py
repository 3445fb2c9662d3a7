"""The backend ``sar`` of ``torch.distributed``: its process groups beside gloo's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed import cases_process_group as cases, cases_process_group_users as users
from tests.support import scripts
from tests.support.pool import Pool
from tests.support.sessions import Workers

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]


@pytest.fixture(scope="module", params=[2, 3])
def some(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    return Workers(pool, request.param, "shm")


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64"])
def test_results_are_those_of_gloo(some: Workers, dtype: str) -> None:
    for compared in some.run(cases.as_gloo, dtype=dtype):
        least = len(cases.MOVES) if dtype == "complex64" else len(cases.MOVES) + len(cases.REDUCTIONS)
        assert len(compared) == least + (0 if "float" in dtype or "complex" in dtype else len(cases.BITS))


@pytest.mark.parametrize(
    "case",
    [
        cases.averages_and_nan,
        cases.strides,
        cases.handles,
        cases.subgroups,
        cases.store,
        cases.one_to_one,
        users.objects,
        users.data_parallel,
        users.data_parallel_on_a_split_graph,
        users.sharded,
        users.checkpoint,
        users.functional,
        users.beside_graphs,
    ],
    ids=lambda case: case.__name__,
)
def test_of_groups(some: Workers, case: cases.Callable[[], str]) -> None:
    assert some.run(case) == ["done"] * some.world


def test_one_worker(pool: Pool) -> None:
    alone = Workers(pool, 1, "shm")
    for case in (cases.handles, cases.store, users.objects, users.data_parallel, users.functional):
        assert alone.run(case) == ["done"]


def test_over_tcp(pool: Pool) -> None:
    workers = Workers(pool, 2, "tcp")
    workers.run(cases.as_gloo, dtype="float32")
    assert workers.run(cases.one_to_one) == ["done"] * 2


def test_refusals(some: Workers) -> None:
    for found in some.run(cases.refusals):
        for name, text in {
            "device": "ValueError: backend sar takes CPU tensors, and one of shape (2,) is on meta",
            "sparse": "dense",
            "dtypes": "differ in dtype: torch.float32 and torch.float64",
            "lists": f"{some.world + 1} outputs for a group of {some.world} ranks",
            "splits": "the input splits",
            "rows": "cannot be divided equally",
            "into": f"{some.world} times as many elements as the input (2,)",
            "scattered": f"{some.world} times as many elements as the output (2,)",
            "operation": "give one of SUM, AVG, MIN, MAX, PRODUCT",
            "average": "an average of integers would be cut off",
            "tag": "NotImplementedError: tag 5",
            "source": "give recv the argument src",
        }.items():
            assert text in found[name], (name, found[name])


def test_sizes_that_differ_end_the_group(some: Workers) -> None:
    for found in some.run(cases.sizes_differ):
        assert len(found) == 4
        for text in found:
            assert text.startswith("ValueError: all-reduce") and "disagree" in text and "3 numbers" in text, found


def test_deadline(pool: Pool) -> None:
    first, _ = Workers(pool, 2, "shm").run(cases.late)
    assert first.startswith(
        "RuntimeError: an operation of a process group of backend sar was not done within 0:00:00.05"
    )
    assert "; DeadlineError: " in first


STARTED_BY_TORCH = """
    import torch.distributed as dist

    dist.init_process_group("sar")
    assert dist.get_backend() == "sar" and not sar.comm.is_initialized()
    t = torch.ones(2)
    dist.all_reduce(t)
    assert t.tolist() == [world] * 2
    sar.initialize_comms()  # meets through the group's store, whose port is the master's
    t = torch.ones(2)
    sar.comm.all_reduce(t)
    assert t.tolist() == [world] * 2
    sar.comm.shutdown()
    dist.all_reduce(t)  # is there as before
    print("sum", t.tolist(), flush=True)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["rank 0 has its sum"])  # what ends a job may overtake it
        raise RuntimeError("rank 1 gives up")
    store.set("rank 0 has its sum", "")
    try:
        dist.barrier()
    except sar.PeerLostError as error:
        print("told", "rank 1 gives up" in str(error))
    dist.destroy_process_group()
"""


def test_started_by_torch(tmp_path: Path) -> None:
    """Without a session of graphs; a worker's exception reaches the others."""
    done = scripts.together(tmp_path, STARTED_BY_TORCH, 2)
    assert done[0][0] == 0 and done[0][1].splitlines()[:2] == ["sum [4.0, 4.0]", "told True"], done
    assert done[1][0] == 1 and "rank 1 gives up" in done[1][2], done
