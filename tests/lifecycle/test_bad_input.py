"""Tensors that do not fit, and calls out of season, through the public interface: what is raised, and what it says.

Bad columns of graph objects are in ``test_graph_manager.py``, bad arguments of collectives in ``test_comm.py``, files
in ``test_bad_files.py``, workers that do not meet in ``test_bad_meeting.py``, those that die in ``test_lifecycle.py``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest
import torch

import sar
import sar.function as fn
from sar._engine import library
from sar.distributed.network import free_port
from tests.support.graphs import make
from tests.support.partitions import E, N, partition
from tests.support.scripts import together
from tests.support.sessions import Workers
from tests.support.worker import build


@pytest.fixture
def session() -> Iterator[None]:
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    yield
    sar.comm.shutdown()


# ---- tensors -----------------------------------------------------------------


class OnCuda:
    """What the package sees of a CUDA tensor, which torch cannot make everywhere."""

    device, dtype, shape = torch.device("cuda:0"), torch.float32, (2, 3)

    def data_ptr(self) -> int:
        raise AssertionError("the memory of a CUDA tensor was asked for")

    stride = data_ptr


def test_cuda_tensors_are_refused(session: None) -> None:
    with pytest.raises(TypeError, match=r"CPU tensors; this one, of shape \[2, 3\], is on cuda:0: move it with .cpu"):
        library.tensor(OnCuda())
    graph = build(make("random", 1).part(0))
    with pytest.raises(TypeError, match="CPU for now, not on cuda"):
        graph.to("cuda:0")
    n, e = graph.num_nodes(), graph.num_edges()
    away, here = torch.empty(n, 2, device="meta"), torch.ones(n, 2)
    for x, w, says in (
        (away, torch.ones(e), r"srcdata\['h'\].* is on meta.*CPU"),
        (here, torch.ones(e, device="meta"), r"edata\['w'\].* is on meta.*CPU"),
    ):
        with graph.local_scope(), pytest.raises(TypeError, match=says):
            graph.srcdata["h"], graph.edata["w"] = x, w
            graph.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))


def test_feature_rows_and_dtypes(session: None) -> None:
    graph = build(make("random", 1).part(0))
    n = graph.num_nodes()
    for x, error, says in (
        (torch.ones(n + 1, 2), ValueError, rf"srcdata\['h'\] has shape \({n + 1}, 2\), but this worker has {n} nodes"),
        (torch.tensor(1.0), ValueError, rf"has shape \(\), but this worker has {n} nodes"),
        (torch.ones(n, 2, dtype=torch.complex64), TypeError, r"srcdata\['h'\] is torch.complex64.*or bfloat16"),
        (torch.ones(n, 2, dtype=torch.bool), TypeError, "is torch.bool.*float32, float64 or bfloat16"),
        (np.ones((n, 2)), TypeError, "torch tensor, not ndarray"),
    ):
        with graph.local_scope(), pytest.raises(error, match=says):
            graph.srcdata["h"] = x
            graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))


def test_non_contiguous_tensors_work(session: None) -> None:
    """Transposed, stepped, reversed in storage, broadcast; features, weights and the gradient that comes back."""
    graph = build(make("random", 1).part(0))
    n, e = graph.num_nodes(), graph.num_edges()

    def run(x: torch.Tensor, w: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        with graph.local_scope():
            graph.srcdata["h"], graph.edata["w"] = x, w
            graph.update_all(fn.u_mul_e("h", "w", "m"), fn.mean("m", "out"))
            out = graph.dstdata["out"]
        return [out.detach(), *torch.autograd.grad(out, (x, w), grad)]

    torch.manual_seed(0)
    for x, w, grad in (
        (torch.randn(4, n).t(), torch.randn(e, 2)[:, :1], torch.randn(4, n).t()),
        (torch.randn(2 * n, 8)[::2, ::2], torch.randn(2 * e)[::2].unsqueeze(1), torch.ones(1, 1).expand(n, 4)),
        (torch.randn(1, 4).expand(n, 4), torch.ones(1, 1).expand(e, 1), torch.randn(4, n).t()),
    ):
        assert not x.is_contiguous() and not grad.is_contiguous()
        plain = run(x.contiguous(), w.contiguous(), grad.contiguous())
        for found, expected in zip(run(x, w, grad), plain):
            assert torch.equal(found, expected)


def nan_is_carried() -> list[list[float]]:
    """On a ring of one node a worker: NaN at rank 0, with weight 0, and infinity."""
    rank, world = sar.rank(), sar.world_size()
    start, before = np.arange(world + 1), (rank - 1) % world
    graph = build({"start": start, "src": np.array([before]), "dst": np.array([rank])})
    x = torch.tensor([[torch.nan, torch.inf, 3.0] if rank == 0 else [1.0, 2.0, 3.0]], requires_grad=True)
    weight = torch.zeros(1, requires_grad=True)
    with graph.local_scope():
        graph.srcdata["h"], graph.edata["w"] = x, weight
        graph.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
        out = graph.dstdata["out"]
    out.backward(torch.full((1, 3), float("nan") if rank == 0 else 1.0))
    total = x.detach().clone()
    sar.comm.all_reduce(total, "sum")
    largest = x.detach().clone()
    sar.comm.all_reduce(largest, "max")
    normal = sar.DistributedBN1D(3)(x.detach())
    assert x.grad is not None and weight.grad is not None
    found = (out, x.grad, weight.grad, total, largest, normal)
    return [t.detach().flatten().tolist() for t in found]


def test_nan_is_carried(two: Workers) -> None:
    isnan = np.isnan
    for rank, found in enumerate(two.run(nan_is_carried)):
        out, grad_x, grad_w, total, largest, normal = map(np.array, found)
        # rank 1 reads rank 0: 0 * nan and 0 * inf are nan; rank 0 reads rank 1, whose numbers are finite
        assert isnan(out).tolist() == ([True, True, False] if rank == 1 else [False] * 3)
        assert isnan(grad_x).tolist() == [rank == 1] * 3, "rank 1's row goes to rank 0, whose gradient is NaN"
        assert isnan(grad_w).all(), "NaN in the gradient at rank 0, in the source row at rank 1"
        assert isnan(total).tolist() == [True, False, False] and np.isinf(total[1])
        assert isnan(largest).tolist() == [True, False, False]
        assert isnan(normal).tolist() == [True, True, False]


# ---- before and after --------------------------------------------------------


def test_use_after_shutdown(tmp_path: Path) -> None:
    def join() -> None:
        sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())

    join()
    data = sar.load_dgl_partition_data(str(partition(tmp_path, 1)), 0)
    graph = sar.construct_full_graph(data)

    def aggregate() -> torch.Tensor:
        with graph.local_scope():
            graph.srcdata["h"] = torch.ones(N, 2)
            graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
            result: torch.Tensor = graph.dstdata["out"]
        return result

    x = torch.ones(N, 2, requires_grad=True)
    graph.srcdata["x"] = x
    graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "late"))
    late = graph.dstdata["late"]
    sar.comm.shutdown()
    uses: list[Callable[[], Any]] = [
        aggregate,
        lambda: late.sum().backward(),
        lambda: sar.construct_full_graph(data),
        lambda: sar.sync_params(torch.nn.Linear(2, 2)),
        lambda: sar.gather_grads(torch.nn.Linear(2, 2)),
        lambda: sar.DistributedBN1D(2, distributed=True)(torch.ones(3, 2)),
        lambda: sar.comm.barrier(),
        sar.rank,
        sar.comm.stats,
        graph.in_degrees,
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="shut ?down.*call sar.initialize_comms again"):
            use()
    assert len(data.all_shard_edges) == 1, "files need no session"
    join()
    try:
        with pytest.raises(RuntimeError, match="shut ?down"):
            aggregate()  # a graph belongs to the session it was made in
        graph = sar.construct_full_graph(data)
        assert aggregate().sum() == 2 * E
    finally:
        sar.comm.shutdown()


def test_use_after_fork(tmp_path: Path) -> None:
    """Every entry of the child is refused, and the parent goes on."""
    json_file = partition(tmp_path, 1)
    ((code, out, err),) = together(
        tmp_path,
        f"""
        join(0, 1)
        data = sar.load_dgl_partition_data({str(json_file)!r}, 0)
        graph = sar.construct_full_graph(data)
        graph.srcdata["h"] = torch.ones({N}, 2)
        uses = [
            lambda: graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out")),
            lambda: sar.load_dgl_partition_data({str(json_file)!r}, 0),
            lambda: sar.comm.all_reduce(torch.ones(2), "sum"),
            lambda: sar.DistributedBN1D(2)(torch.ones(3, 2)),
            sar.stats,
            sar.memory_stats,
        ]
        pid = os.fork()
        if pid == 0:
            for use in uses:
                try:
                    use()
                except RuntimeError as error:
                    print("REFUSED", error)
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        for use in uses:
            use()
        print("the parent goes on")
        """,
        1,
    )
    assert code == 0, err
    refused = [line for line in out.splitlines() if line.startswith("REFUSED")]
    assert len(refused) == 6 and "the parent goes on" in out, out
    for line in refused:
        assert re.search(r"process \d+ was forked from process \d+ after .*`spawn`", line), line
