"""Collectives on torch tensors, and the parameters and gradients of models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sar
from sar.distributed import network
from tests.distributed import cases_comm
from tests.support.sessions import Workers

OPS = {"SUM": np.sum, "MIN": np.min, "MAX": np.max, "PRODUCT": np.prod, "AVG": np.mean}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"])
def test_all_reduce(workers: Workers, dtype: str, op: str) -> None:
    if op == "AVG" and not dtype.startswith("float"):
        pytest.skip("the average of integers is not defined")
    rng = np.random.default_rng(3)
    given = [(rng.random((3, 5)) * 3).astype(dtype) for _ in range(workers.world)]
    results = workers.run(cases_comm.all_reduce, [{"x": x} for x in given], op=op)
    if dtype == "bool":
        expected: Any = np.any(given, axis=0) if op in ("SUM", "MAX") else np.all(given, axis=0)
    else:
        expected = OPS[op](np.stack(given).astype("float64" if dtype.startswith("float") else dtype), axis=0)
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2}.get(dtype, 0)
    for result in results:
        assert result.dtype == np.dtype(dtype)
        assert np.array_equal(result, results[0]), "ranks differ"
        found, wanted = result.astype("float64"), np.asarray(expected, "float64")
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_all_reduce_of_odd_tensors(workers: Workers) -> None:
    """No dimension, no elements, strides, and a tensor autograd saved."""
    for result in workers.run(cases_comm.odd_all_reduces):
        assert result == "done"


def test_all_reduce_messages(two: Workers) -> None:
    for result in two.run(cases_comm.all_reduce_messages):
        assert "BAND" in result[0] and "ReduceOp.SUM" in result[0]
        assert "complex64" in result[1]


def test_all_to_all_and_exchanges(workers: Workers) -> None:
    for result in workers.run(cases_comm.exchanges):
        assert result == "done"


def test_sync_params_and_gather_grads(workers: Workers) -> None:
    for result in workers.run(cases_comm.parameters):
        assert result == "done"


def test_models_that_differ_are_refused(two: Workers) -> None:
    for rank, message in enumerate(two.run(cases_comm.different_models)):
        assert "differ in the names, shapes" in message and f"weight (3, {4 + rank})" in message


def test_what_a_worker_knows(workers: Workers) -> None:
    for rank, facts in enumerate(workers.run(cases_comm.facts)):
        assert facts["rank"] == rank and facts["world"] == workers.world
        assert facts["backend"] == "sar" and facts["device"] == "cpu" and facts["ip"] == "127.0.0.1"
        assert facts["initialized"] and facts["stats"]["rank"] == rank
        assert facts["stats"]["data_plane"]["aggregation"] == "native"
        assert len(facts["stats"]["peers"]) in (workers.world - 1, workers.world)
        assert "total" in facts["memory"]
        if workers.world > 1:
            assert {link["transport"] for link in facts["stats"]["links"]} == {workers.transport}


# ---- without workers -------------------------------------------------------


def test_addresses(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAR_SOCKET_NAME", raising=False)
    name, address = sar.comm.get_socket()
    assert name and address.count(".") == 3
    file = str(tmp_path / "ip")
    assert sar.nfs_ip_init(0, file) == address == sar.nfs_ip_init(1, file) == sar.comm.get_ip_address(file)
    assert [p.name for p in tmp_path.iterdir()] == ["ip"]
    monkeypatch.setenv("SAR_SOCKET_NAME", "lo")
    assert sar.comm.get_socket().ip_addr.startswith("127.")
    monkeypatch.setenv("SAR_SOCKET_NAME", "nosuch0")
    with pytest.raises(ValueError, match="nosuch0.*there are: .*lo"):
        sar.comm.get_socket()
    monkeypatch.setenv("SAR_START_TIMEOUT", "0.1")
    with pytest.raises(sar.RendezvousError, match="no address in"):
        sar.nfs_ip_init(1, str(tmp_path / "missing"))


def test_bad_initialization(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, world in ((2, 2), (-1, 2)):
        with pytest.raises(ValueError, match=f"rank {rank} is outside 0..1"):
            sar.initialize_comms(rank, world, "127.0.0.1", "sar")
    with pytest.raises(ValueError, match="at least one worker"):
        sar.initialize_comms(0, 0, "127.0.0.1", "sar")
    with pytest.raises(ValueError, match="'smoke' is unknown.*'sar', 'gloo'"):
        sar.initialize_comms(0, 1, "127.0.0.1", "smoke")
    if not torch.distributed.is_mpi_available():
        with pytest.raises(ValueError, match="built without mpi"):
            sar.initialize_comms(0, 1, "127.0.0.1", "mpi")
    monkeypatch.setenv("SAR_BACKEND", "smoke")
    with pytest.raises(ValueError, match="SAR_BACKEND='smoke'"):
        sar.initialize_comms(0, 1, "127.0.0.1", "gloo")
    monkeypatch.delenv("SAR_BACKEND")
    monkeypatch.setenv("SAR_LIVENESS_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="SAR_LIVENESS_TIMEOUT='soon'"):
        sar.initialize_comms(0, 1, "127.0.0.1", "sar")
    assert not sar.comm.is_initialized()


def test_before_initialization_and_after_shutdown() -> None:
    with pytest.raises(RuntimeError, match="initialize_comms"):
        sar.rank()
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=network.free_port())
    try:
        assert (sar.rank(), sar.world_size(), sar.comm.backend()) == (0, 1, "sar")
        with pytest.raises(RuntimeError, match="initialized already"):
            sar.initialize_comms(0, 1, "127.0.0.1", "sar")
    finally:
        sar.comm.shutdown()
    sar.comm.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        sar.comm.all_reduce(torch.ones(2))


def test_the_default_group_is_made_and_destroyed() -> None:
    dist = torch.distributed
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=network.free_port())
    assert dist.get_backend() == sar.stats()["data_plane"]["torch.distributed"] == "sar"
    sar.comm.shutdown()
    assert not dist.is_initialized()
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=network.free_port())
    dist.destroy_process_group()
    sar.comm.barrier()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    sar.comm.shutdown()
    assert dist.get_backend() == "gloo", "shutdown destroyed a group of the script's"
    dist.destroy_process_group()


def test_allocator_policy_and_threads() -> None:
    with pytest.raises(ValueError, match="'pool', 'compact' or 'default'"):
        sar.set_allocator("huge")
    for policy in ("default", "compact", "pool"):
        sar.set_allocator(policy)
    with pytest.raises(ValueError, match="at least 1"):
        sar.set_num_threads(0)
    sar.set_num_threads(2)
    assert sar.memory_stats()["total"]["live"] >= 0
