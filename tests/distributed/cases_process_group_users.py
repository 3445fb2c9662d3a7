"""What torch builds on process groups of backend ``sar``, and what goes on beside them."""

from __future__ import annotations

import copy
import tempfile
import warnings
from typing import Any

import dgl
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import sar
from tests.distributed.cases_process_group import groups, same
from tests.support.graphs import make
from tests.support.worker import build


def objects() -> str:
    ours, _ = groups()
    rank, world = sar.rank(), sar.world_size()
    found: list[Any] = [None] * world
    dist.all_gather_object(found, {"rank": rank, "long": "x" * (1000 * rank)})
    assert [f["rank"] for f in found] == list(range(world)) and len(found[-1]["long"]) == 1000 * (world - 1)
    told = [{"a": 1}, "b", None] if rank == 0 else [None] * 3
    dist.broadcast_object_list(told, src=0)
    assert told == [{"a": 1}, "b", None]
    gathered: Any = [None] * world if rank == 0 else None
    dist.gather_object(rank, gathered, dst=0)
    assert rank or gathered == list(range(world))
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"for {q}" for q in range(world)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]
    return "done"


def _trained(model: nn.Module, group: Any) -> dict[str, Tensor]:
    wrapped = nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(16, 40, generator=torch.Generator().manual_seed(10 * step + sar.rank()))
        optimizer.zero_grad()
        wrapped(x).square().mean().backward()
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def data_parallel() -> str:
    """DistributedDataParallel with several buckets and a buffer, beside gloo's."""
    ours, gloo = groups()
    torch.manual_seed(sar.rank())  # rank 0's are everybody's
    model = nn.Sequential(nn.Linear(40, 600), nn.BatchNorm1d(600), nn.ReLU(), nn.Linear(600, 600), nn.Linear(600, 3))
    expected = _trained(copy.deepcopy(model), gloo)
    found = _trained(copy.deepcopy(model), ours)
    for name, value in expected.items():
        same(found[name], value, name, rtol=1e-5, atol=1e-6)
    return "done"


def data_parallel_on_a_split_graph() -> str:
    """DistributedDataParallel averages and says so; with the hook it is gather_grads, over several buckets."""
    ours, _ = groups()
    graph = build(make("random", sar.world_size(), seed=3).part(sar.rank()))
    x = torch.randn(graph.num_nodes(), 6, generator=torch.Generator().manual_seed(sar.rank())).double()
    torch.manual_seed(4)
    layers = [dgl.nn.pytorch.SAGEConv(6, 8, "mean"), dgl.nn.pytorch.GATConv(8, 5, 2)]
    model = nn.ModuleList([*layers, nn.Linear(5, 3)]).double()
    model.forward = lambda h: model[2](model[1](graph, model[0](graph, h)).mean(1))  # type: ignore[assignment]

    def gradients(of: nn.Module) -> list[Tensor]:
        model.zero_grad()
        of(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    def wrapped() -> nn.parallel.DistributedDataParallel:
        return nn.parallel.DistributedDataParallel(model, process_group=ours, bucket_cap_mb=1e-4)  # type: ignore[arg-type]

    gradients(model)
    sar.gather_grads(model)
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    averaging = wrapped()
    with pytest.warns(RuntimeWarning, match="sar.sum_gradients"):
        averages = gradients(averaging)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        gradients(averaging)  # says so once
        summing = wrapped()
        summing.register_comm_hook(ours, sar.sum_gradients)
        sums = gradients(summing)
    for wanted, average, found in zip(expected, averages, sums):
        same(average * sar.world_size(), wanted, "averages", rtol=1e-10, atol=1e-12)
        same(found, wanted, "sums", rtol=1e-10, atol=1e-12)
    assert len(expected) == len(sums) == len(list(model.parameters()))
    return "done"


def sharded() -> str:
    """FSDP2: parameters in parts, where torch has it; the step is that of one process with all rows."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return "done"
    groups()
    rank, world = sar.rank(), sar.world_size()
    torch.manual_seed(5)
    plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    split = fully_shard(copy.deepcopy(plain), mesh=init_device_mesh("cpu", (world,)))
    rows = torch.randn(world, 5, 8, generator=torch.Generator().manual_seed(1))
    for model, x in ((plain, rows), (split, rows[rank])):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(x).square().mean().backward()
        optimizer.step()
    for found, expected in zip(split.parameters(), plain.parameters()):
        same(found.full_tensor(), expected.detach(), "a parameter", rtol=1e-5, atol=1e-6)
    return "done"


def checkpoint() -> str:
    """torch.distributed.checkpoint writes and reads through the group."""
    import torch.distributed.checkpoint as dcp

    groups()
    folder: list[Any] = [tempfile.mkdtemp() if sar.rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    state = {"weight": torch.arange(12.0).view(3, 4), f"own.{sar.rank()}": torch.full((5,), float(sar.rank()))}
    save, load = getattr(dcp, "save", None), getattr(dcp, "load", None)
    assert save is not None and load is not None
    save(state, storage_writer=dcp.FileSystemWriter(folder[0]))
    read = {name: torch.zeros_like(t) for name, t in state.items()}
    load(read, storage_reader=dcp.FileSystemReader(folder[0]))
    for name, value in state.items():
        assert torch.equal(read[name], value), name
    if hasattr(dcp, "async_save"):
        changing = {name: t.clone() for name, t in state.items()}
        saved = dcp.async_save(changing, storage_writer=dcp.FileSystemWriter(f"{folder[0]}/later"))
        for t in changing.values():
            t.zero_()
        saved.result()
        load(read, storage_reader=dcp.FileSystemReader(f"{folder[0]}/later"))
        assert all(torch.equal(read[name], value) for name, value in state.items())
    return "done"


def functional() -> str:
    """Collectives of torch's C++ code, which calls the group from there."""
    from torch.distributed import _functional_collectives as functions

    groups()
    rank, world = sar.rank(), sar.world_size()
    ranks = list(range(world))
    x = torch.full((world, 2), float(rank))
    assert torch.equal(functions.all_reduce(x, "sum", ranks) + 0, torch.full((world, 2), float(sum(ranks))))
    gathered = functions.all_gather_tensor(x, 0, ranks) + 0
    assert gathered[:, 0].tolist() == [q for q in ranks for _ in ranks]
    scattered = functions.reduce_scatter_tensor(x, "sum", 0, ranks) + 0
    assert torch.equal(scattered, torch.full((1, 2), float(sum(ranks))))
    return "done"


def beside_graphs() -> str:
    """The session does not notice a further group, even where ranks use it at other places. With the default group its
    collectives share an order."""
    groups()
    rank, world = sar.rank(), sar.world_size()
    pending = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(5)]
    t = torch.ones(3)
    sar.comm.all_reduce(t)
    assert t.tolist() == [world] * 3 and all(work.is_completed() for work in pending)
    group = dist.new_group(list(range(world)))
    before = sar.comm.stats()
    work = dist.all_reduce(torch.ones(100), group=group, async_op=True) if rank == 0 else None
    t = torch.ones(3)
    sar.comm.all_reduce(t)  # the others come to the group's operation after this one
    assert t.tolist() == [world] * 3
    if work is None:
        dist.all_reduce(torch.ones(100), group=group)
    else:
        work.wait()
    dist.barrier(group=group)
    after = sar.comm.stats()
    counts = [{op: n["count"] for op, n in s["operations"].items()} for s in (before, after)]
    more = {op: n - counts[0].get(op, 0) for op, n in counts[1].items() if n != counts[0].get(op, 0)}
    assert list(more.values()) == [1], more
    return "done"
