"""What process groups of backend ``sar`` do, beside gloo's in the same processes."""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Iterator
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor

import sar
from sar._engine import session as _session
from tests.support.worker import refusal

Calls = dict[str, Callable[[Any, Tensor], Any]]
_beside: tuple[Any, Any] = (None, None)


def groups() -> tuple[Any, Any]:
    """torch's default group, of backend ``sar``, and one of gloo's."""
    global _beside
    if _beside[0] is not dist.group.WORLD:
        _beside = dist.group.WORLD, dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=60))
    return _beside


def values(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    """Small integers, which every sum holds exactly, differing from rank to rank."""
    random = torch.Generator().manual_seed(97 * seed + sar.rank())
    found = torch.randint(0, 3, shape, generator=random)
    return torch.complex(found.float(), 7 * found.float()) if dtype.is_complex else found.to(dtype)


def same(found: Any, expected: Any, name: str, rtol: float = 0, atol: float = 0) -> None:
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, msg=lambda text: f"{name}: {text}")


def _like(t: Tensor) -> Tensor:
    return torch.full_like(t, 1, memory_format=torch.contiguous_format)


def _multiples(t: Tensor) -> list[Tensor]:
    return [(t * q).to(t.dtype) for q in range(sar.world_size())]


def _all_gather(group: Any, t: Tensor) -> Any:
    out = [_like(t) for _ in range(sar.world_size())]
    dist.all_gather(out, t, group=group)
    return out


def _all_gather_into(group: Any, t: Tensor) -> Any:
    out = t.new_empty((sar.world_size() * t.shape[0], *t.shape[1:]))
    dist.all_gather_into_tensor(out, t, group=group)
    return out


def _gather(group: Any, t: Tensor) -> Any:
    root = sar.world_size() - 1
    out = [_like(t) for _ in range(sar.world_size())] if sar.rank() == root else None
    dist.gather(t, out, dst=root, group=group)
    return out


def _scatter(group: Any, t: Tensor) -> Any:
    out = _like(t)
    dist.scatter(out, _multiples(t) if sar.rank() == 0 else None, src=0, group=group)
    return out


def _broadcast(group: Any, t: Tensor) -> Any:
    dist.broadcast(t, src=sar.world_size() - 1, group=group)
    return t


def _all_to_all_single(group: Any, t: Tensor) -> Any:
    """Rank r sends q + r elements to rank q, or none at all."""
    rank, world = sar.rank(), sar.world_size()
    counts = [(q + rank) * min(1, t.numel()) for q in range(world)]
    rows = t.flatten()[:1].expand(sum(counts)).clone()
    out = torch.empty_like(rows)
    dist.all_to_all_single(out, rows, counts, counts, group=group)
    return out


def _reduced(call: Callable[..., Any], op: Any, **more: Any) -> Callable[[Any, Tensor], Any]:
    def run(group: Any, t: Tensor) -> Any:
        call(t, op=op, group=group, **more)
        return t if more.get("dst", sar.rank()) == sar.rank() else None

    return run


def _scattered(group: Any, t: Tensor) -> Tensor:
    """A sum that is scattered, by what gloo has in every version of torch."""
    parts = torch.cat(_multiples(t))
    dist.all_reduce(parts, group=group)
    return parts.view(sar.world_size(), *t.shape)[sar.rank()]


def _reduce_scatter(call: Callable[..., Any], join: Callable[[list[Tensor]], Any]) -> Callable[[Any, Tensor], Any]:
    def run(group: Any, t: Tensor) -> Any:
        if group is _beside[1]:
            return _scattered(group, t)
        out = _like(t)
        call(out, join(_multiples(t)), group=group)
        return out

    return run


MOVES: Calls = {
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into,
    "gather": _gather,
    "scatter": _scatter,
    "broadcast": _broadcast,
    "all_to_all_single": _all_to_all_single,
}
OPS = dist.ReduceOp
REDUCTIONS: Calls = {
    "sum": _reduced(dist.all_reduce, OPS.SUM),
    "min": _reduced(dist.all_reduce, OPS.MIN),
    "max": _reduced(dist.all_reduce, OPS.MAX),
    "product": _reduced(dist.all_reduce, OPS.PRODUCT),
    "reduce": _reduced(dist.reduce, OPS.SUM, dst=0),
    "reduce_scatter": _reduce_scatter(dist.reduce_scatter, list),
    "reduce_scatter_tensor": _reduce_scatter(dist.reduce_scatter_tensor, torch.cat),
}
BITS: Calls = {
    "band": _reduced(dist.all_reduce, OPS.BAND),
    "bor": _reduced(dist.all_reduce, OPS.BOR),
    "bxor": _reduced(dist.all_reduce, OPS.BXOR),
}


def _on_gloo(call: Callable[[Any, Tensor], Any], gloo: Any, given: Tensor) -> Any:
    """gloo knows no complex numbers: it gets the two parts one after the other."""
    if not given.is_complex():
        return call(gloo, given.clone())
    real, imaginary = (call(gloo, part.clone()) for part in (given.real, given.imag))
    if isinstance(real, list):
        return [torch.complex(*parts) for parts in zip(real, imaginary)]
    return None if real is None else torch.complex(real, imaginary)


def as_gloo(dtype: str) -> list[str]:
    """Every collective of a dtype, on tensors of two dimensions, of none of the elements, and with strides. Returns the
    names of what was compared."""
    ours, gloo = groups()
    kind = getattr(torch, dtype)
    calls = dict(MOVES)
    if not kind.is_complex:
        calls.update(REDUCTIONS)
    if not (kind.is_floating_point or kind.is_complex):
        calls.update(BITS)
    compared = []
    for name, call in calls.items():
        for shape in ((4, 3), (1, 1), (0, 2)):
            given = values(kind, *shape, seed=len(name))
            expected = _on_gloo(call, gloo, given)
            found = call(ours, given.clone())
            same(found, expected, f"{name} {shape}")
            if name not in ("sum", "min", "max", "product", "reduce", "broadcast", *BITS):
                continue
            wide = torch.zeros(2 * shape[0], 2 * shape[1], dtype=kind)
            view = wide[::2, 1::2]
            view.copy_(given)
            call(ours, view)
            if name != "reduce" or sar.rank() == 0:
                assert torch.equal(view, expected), f"{name} {shape} with strides"
            assert not wide[1::2].any() and not wide[:, ::2].any(), f"{name} writes beside a tensor with strides"
        compared.append(name)
    return compared


def averages_and_nan() -> str:
    """What gloo has not, and what it rounds in another order."""
    ours, gloo = groups()
    rank, world = sar.rank(), sar.world_size()
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        given = values(dtype, 50, seed=3) / 7
        rows = [torch.empty_like(given) for _ in range(world)]
        dist.all_gather(rows, given, group=gloo)
        exact = torch.stack(rows).double()
        mean = given.clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        torch.testing.assert_close(
            mean.double(), exact.mean(0), rtol=1e-2 if mean.element_size() == 2 else 1e-6, atol=0
        )
        scattered = torch.empty(50, dtype=dtype)
        dist.reduce_scatter_tensor(scattered, given.repeat(world), dist.ReduceOp.AVG)
        assert torch.equal(scattered, mean), "an average has other bits where it is scattered"
    top = torch.tensor([float("nan") if rank == world - 1 else 1.0])
    dist.all_reduce(top, dist.ReduceOp.MAX)
    assert top.isnan().all()
    return "done"


def strides() -> str:
    """Sent from and received into parts of larger tensors; what is no result stays as it was."""
    groups()
    rank, world = sar.rank(), sar.world_size()
    ranks = torch.arange(float(world))
    given = torch.full((6, 2), float(rank))[::2, 1]
    wide = torch.full((world, 6), -1.0)
    dist.all_gather([row[::2] for row in wide], given)
    assert torch.equal(wide[:, ::2], ranks[:, None].expand(world, 3)) and (wide[:, 1::2] == -1).all()
    wide = torch.full((3, 2), -1.0)
    dist.scatter(wide[:, 0], [given + q for q in range(world)] if rank == 0 else None, src=0)
    assert wide.tolist() == [[rank, -1]] * 3
    wide = torch.full((world, 2), -1.0)
    dist.all_to_all_single(wide[:, 1], torch.full((2, world), float(rank)).T[:, 0])
    assert torch.equal(wide[:, 1], ranks) and (wide[:, 0] == -1).all()
    wide = torch.full((3, 2), -1.0)
    dist.reduce_scatter(wide[:, 0], [given] * world)
    assert wide.tolist() == [[float(ranks.sum()), -1]] * 3
    mine = torch.full((3,), rank + 1.0)
    dist.reduce(mine, dst=0)
    assert mine.tolist() == [float(ranks.sum()) + world if rank == 0 else rank + 1] * 3
    return "done"


def handles() -> str:
    """Asynchronous operations, many at a time, among others that are not."""
    ours, _ = groups()
    world = sar.world_size()
    tensors = [torch.full((1000,), float(i)) for i in range(30)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    last = torch.ones(3)
    dist.all_reduce(last)  # runs after them
    assert all(work.is_completed() for work in works), "an operation overtook those before it"
    for i, (work, t) in enumerate(zip(works, tensors)):
        assert work.wait() and work.is_success() and work.exception() is None
        assert torch.equal(t, torch.full((1000,), float(i * world)))
        assert work.get_future().wait()[0] is t and work.result()[0] is t
    assert last.tolist() == [world] * 3
    out = [torch.empty(3) for _ in range(world)]
    works = [dist.all_gather(out, last, async_op=True), dist.barrier(async_op=True)]
    works.append(dist.broadcast(last, 0, async_op=True))
    for work in works:
        work.wait(datetime.timedelta(seconds=60))
    assert all(torch.equal(t, last) for t in out)
    ran = []
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda f: ran.append(f.value()[0].sum()))
    future.wait()
    assert ran == [2 * world]
    return "done"


def subgroups() -> str:
    """Groups of some ranks, in an order of their own, used by their ranks alone, beside each other."""
    groups()
    rank, world = sar.rank(), sar.world_size()
    odd, even = dist.new_group(list(range(1, world, 2))), dist.new_group(list(range(0, world, 2)))
    for mine, ranks in ((odd, range(1, world, 2)), (even, range(0, world, 2))):
        if rank in ranks:
            for _ in range(1 + rank % 2):  # not as often in both
                t = torch.tensor([rank])
                dist.all_reduce(t, group=mine)
                assert t.item() == sum(ranks), (rank, t)
            dist.broadcast(t, src=max(ranks), group=mine)
            assert dist.get_group_rank(mine, rank) == list(ranks).index(rank)
    everyone = torch.ones(1)
    dist.all_reduce(everyone)
    assert everyone.item() == world
    for mine, ranks in ((odd, range(1, world, 2)), (even, range(0, world, 2))):
        if rank in ranks:
            dist.destroy_process_group(mine)
    open_before = len(_session.groups)
    dist.destroy_process_group(dist.new_group(list(range(world))))
    assert len(_session.groups) == open_before, "a group that was destroyed is still open"
    return "done"


def store() -> str:
    """The store of the default group, through those with a prefix that torch puts before it."""
    groups()
    rank, world = sar.rank(), sar.world_size()
    ours = dist.PrefixStore("test", dist.distributed_c10d._get_default_store())
    ours.set(f"of {rank}", bytes([0, 255, rank]))
    ours.wait([f"of {q}" for q in range(world)], datetime.timedelta(seconds=30))
    assert [ours.get(f"of {q}") for q in range(world)] == [bytes([0, 255, q]) for q in range(world)]
    ours.add("sum", rank)
    sar.comm.barrier()
    assert ours.add("sum", 0) == world * (world - 1) // 2 == int(ours.get("sum"))
    sar.comm.barrier()
    assert ours.compare_set("chosen", "", "first") == b"first" == ours.compare_set("chosen", "", "second")
    assert ours.compare_set("none", "old", "new") == b"old"
    sar.comm.barrier()
    assert ours.num_keys() >= world + 2
    sar.comm.barrier()
    assert rank or [ours.delete_key("of 0"), ours.delete_key("of 0")] == [True, False]
    late = refusal(lambda: ours.wait(["never"], datetime.timedelta(milliseconds=20)))
    assert "nobody has set" in late and "never" in late, late
    return "done"


def one_to_one() -> str:
    """Messages around the ring, both ways at once, received before they are sent, of several sizes."""
    groups()
    rank, world = sar.rank(), sar.world_size()
    if world == 1:
        return "done"
    up, down = (rank + 1) % world, (rank - 1) % world
    for size in (0, 1, 5000, 3_000_000):
        got: list[Tensor] = [torch.empty(size, dtype=torch.int16) for _ in range(2)]
        works: list[Any] = [dist.irecv(got[0], down), dist.irecv(got[1], up)]
        sent = [torch.full((size,), 10 * rank + way, dtype=torch.int16) for way in range(2)]
        works += [dist.isend(sent[0], up), dist.isend(sent[1], down)]
        for work in works:
            work.wait()
        if size:
            assert [int(t.unique()) for t in got] == [10 * down, 10 * up + 1]
    got = [torch.empty(4), torch.empty(4)]
    ops = [dist.P2POp(dist.isend, torch.full((4,), float(rank)), up), dist.P2POp(dist.irecv, got[0], down)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got[0].tolist() == [down] * 4
    if rank == 0:
        for i in range(20):
            dist.send(torch.tensor([i]), 1)
    elif rank == 1:
        for i in range(20):
            t = torch.tensor([-1])
            dist.recv(t, 0)
            assert t.item() == i
    return "done"


@contextlib.contextmanager
def _fresh(seconds: float = 60) -> Iterator[Any]:
    """A group that an error may end."""
    groups()
    group = dist.new_group(list(range(sar.world_size())), timeout=datetime.timedelta(seconds=seconds))
    dist.barrier(group=group)  # all have it before one ends it
    dist.barrier()  # and nobody is in that barrier any longer
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


def refusals() -> dict[str, str]:
    """What is refused before anything is sent, so that the group goes on."""
    ours, _ = groups()
    world = sar.world_size()
    found = {
        "device": refusal(lambda: dist.all_reduce(torch.ones(2, device="meta"))),
        "sparse": refusal(lambda: dist.all_reduce(torch.eye(3).to_sparse())),
        "dtypes": refusal(lambda: ours.alltoall([torch.ones(1)] * world, [torch.ones(1).double()] * world)),
        "lists": refusal(lambda: ours.alltoall([torch.ones(1)] * (world + 1), [torch.ones(1)] * world)),
        "splits": refusal(lambda: ours.all_to_all_single(torch.ones(world), torch.ones(world), [], [9] * world)),
        "rows": refusal(lambda: dist.all_to_all_single(torch.ones(world), torch.ones(world * 2 + 1))),
        "into": refusal(lambda: dist.all_gather_into_tensor(torch.ones(world * 2 + 1), torch.ones(2))),
        "scattered": refusal(lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(world * 2 + 1))),
        "operation": refusal(lambda: dist.all_reduce(torch.ones(2), dist._make_nccl_premul_sum(2.0))),
        "average": refusal(lambda: dist.all_reduce(torch.ones(2, dtype=torch.int64), dist.ReduceOp.AVG)),
        "tag": refusal(lambda: ours.send([torch.ones(2)], (sar.rank() + 1) % world, 5)),
        "source": refusal(lambda: ours.recv_anysource([torch.ones(2)], 0)),
    }
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t.item() == world
    return found


def sizes_differ() -> list[str]:
    """The error comes at the call, at ``wait``, and again at the next operation; other groups go on."""
    found = []
    for asynchronous in (False, True):
        with _fresh() as group:
            found.append(refusal(functools.partial(_reduce_unlike, group, asynchronous)))
            found.append(refusal(functools.partial(dist.barrier, group)))
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t.item() == sar.world_size()
    return found


def _reduce_unlike(group: Any, asynchronous: bool) -> None:
    work = dist.all_reduce(torch.ones(3 + sar.rank()), group=group, async_op=asynchronous)
    if work is not None:
        work.wait()


def late() -> str:
    """A rank that does not come in time."""
    with _fresh(1.0) as group:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True) if sar.rank() == 0 else None
        found = refusal(lambda: work.wait(datetime.timedelta(milliseconds=50))) if work is not None else ""
        found += "; " + (refusal(work.wait) if work is not None else "")
        sar.comm.barrier()
    return found
