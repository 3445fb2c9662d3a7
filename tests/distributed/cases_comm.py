"""Collectives and gradients of models, on a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from tests.support.worker import refusal


def all_reduce(x: np.ndarray, op: str) -> np.ndarray:
    t = torch.from_numpy(x.copy())
    sar.comm.all_reduce(t, getattr(torch.distributed.ReduceOp, op), move_to_comm_device=True)
    return t.numpy()


def odd_all_reduces() -> str:
    rank, world = sar.rank(), sar.world_size()
    total = world * (world - 1) // 2
    scalar = torch.tensor(rank)
    sar.comm.all_reduce(scalar, op=torch.distributed.ReduceOp.SUM)
    assert scalar.item() == total and scalar.dim() == 0
    sar.comm.all_reduce(torch.empty(0), "sum")
    wide = torch.zeros(4, 6)
    view = wide[:, ::2]
    view += rank
    sar.comm.all_reduce(view, torch.distributed.ReduceOp.SUM)
    assert torch.equal(wide, torch.tensor([total, 0] * 3).expand(4, 6).float())
    half = torch.full((5,), float(rank), dtype=torch.bfloat16)
    sar.comm.all_reduce(half, "max")
    assert half.tolist() == [world - 1] * 5
    leaf = torch.ones(3, requires_grad=True)
    sar.comm.all_reduce(leaf, "sum")
    assert leaf.requires_grad and leaf.tolist() == [world] * 3
    saved = torch.full((3,), 2.0, requires_grad=True).clone()
    product = saved * saved
    sar.comm.all_reduce(saved, "sum")
    try:
        product.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("autograd did not notice that a saved tensor changed")
    return "done"


def all_reduce_messages() -> list[str]:
    found = []
    for tensor, op in ((torch.ones(2), torch.distributed.ReduceOp.BAND), (torch.ones(2, dtype=torch.complex64), "sum")):
        found.append(refusal(sar.comm.all_reduce, tensor, op))
    return found


def exchanges() -> str:
    rank, world = sar.rank(), sar.world_size()
    # all_to_all of unequal sizes: rank p sends p + q + 1 numbers to q
    send = [torch.full((rank + q + 1,), 100 * rank + q) for q in range(world)]
    recv = [torch.zeros(rank + q + 1, dtype=torch.int64) for q in range(world)]
    sar.comm.all_to_all(recv, send)
    assert all(t.tolist() == [100 * q + rank] * (rank + q + 1) for q, t in enumerate(recv))
    # exchange_tensors, with sizes given and not; some are empty
    rows = [torch.full((q, 2), float(rank)) for q in range(world)]
    for sizes in (None, [rank] * world):
        got = sar.comm.exchange_tensors(rows, sizes)
        assert [tuple(t.shape) for t in got] == [(rank, 2)] * world
        assert all((t == q).all() for q, t in enumerate(got))
    # round by round, the own rank first
    for step in range(world):
        to, origin = (rank + step) % world, (rank - step) % world
        got_one = torch.zeros(3, dtype=torch.bool)
        sar.comm.exchange_single_tensor(origin, to, got_one, torch.tensor([True, rank % 2 == 0, False]))
        assert got_one.tolist() == [True, origin % 2 == 0, False]
    sar.comm.barrier()
    mine = torch.full((2, 2), rank)
    sar.comm.broadcast(mine, world - 1)
    assert (mine == world - 1).all()
    for call in (
        lambda: sar.comm.all_to_all(recv[:-1], send),
        lambda: sar.comm.exchange_tensors([torch.ones(2)] * (world + 1)),
        lambda: sar.comm.exchange_single_tensor(world, 0, mine, mine),
    ):
        try:
            call()
        except ValueError as error:
            assert "workers" in str(error) or f"ranks are 0 to {world - 1}" in str(error)
        else:
            raise AssertionError("not refused")
    return "done"


def parameters() -> str:
    from sar.distributed import gradients

    rank, world = sar.rank(), sar.world_size()
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2).double(), torch.nn.Linear(2, 2))
    model.register_parameter("unused", torch.nn.Parameter(torch.randn(3)))
    model.register_parameter("rare", torch.nn.Parameter(torch.randn(3, 2).t()))
    sar.sync_params(model)
    torch.manual_seed(0)
    first = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2).double(), torch.nn.Linear(2, 2))
    assert all(torch.equal(a, b) for a, b in zip(model[0].parameters(), first[0].parameters()))
    assert all(torch.equal(a, b) for a, b in zip(model[1].parameters(), first[1].parameters()))
    bytes_before, gradients.BUCKET_BYTES = gradients.BUCKET_BYTES, 20  # several buckets of one dtype
    try:
        for n, p in enumerate(model.parameters()):
            p.grad = torch.full_like(p, float(n + rank))
        model.unused.grad = None
        if rank != world - 1:
            model.rare.grad = None  # one rank alone has it
        sar.gather_grads(model)
    finally:
        gradients.BUCKET_BYTES = bytes_before
    assert model.unused.grad is None
    for n, (name, p) in enumerate(model.named_parameters()):
        if name == "unused":
            continue
        expected = n * world + world * (world - 1) / 2 if name != "rare" else n + world - 1
        assert p.grad is not None and p.grad.dtype == p.dtype and bool((p.grad == expected).all()), (name, p.grad)
    embedding = torch.nn.Embedding(3, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    try:
        sar.gather_grads(embedding)
    except ValueError as error:
        assert "weight is sparse" in str(error)
    else:
        raise AssertionError("a sparse gradient was not refused")
    return "done"


def different_models() -> str:
    return refusal(lambda: sar.sync_params(torch.nn.Linear(4 + sar.rank(), 3)))


def facts() -> dict[str, Any]:
    return {
        "rank": sar.rank(),
        "world": sar.world_size(),
        "backend": sar.comm.backend(),
        "device": str(sar.comm_device()),
        "ip": sar.comm.master_ip(),
        "initialized": sar.comm.is_initialized(),
        "stats": sar.stats(),
        "memory": sar.memory_stats(),
    }
