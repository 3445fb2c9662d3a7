"""What a user may get wrong, through the public interface: what is raised, what it says, and how soon.

Bad columns of graph objects are in ``test_graph_manager.py``, bad arguments of collectives in ``test_comm.py``, workers
that die in ``test_lifecycle.py``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest
import torch

import sar
import sar.function as fn
from cases import build
from conftest import Workers
from graphs import make
from sar import _native
from sar._network import free_port
from sar.cli.dataset import Dataset

N, E, PARTS = 30, 100, 2
FILES = ["graph.dgl", "node_feat.dgl", "edge_feat.dgl"]
MEND = "copy it again, or partition the graph again"
ARRAY = struct.pack("<Q", 0xDD5E40F096B4A13F)  # what every array in a DGL file begins with


def graph_file(path: Path, **changes: Any) -> str:
    rng = np.random.default_rng(3)
    arrays = {
        "edge_index": rng.integers(0, N, (2, E)),
        "x": rng.random((N, 3), dtype=np.float32),
        "y": np.arange(N) % 4,
        "w": rng.random(E, dtype=np.float32),
    }
    np.savez(path, **{**arrays, **changes})
    return str(path)


def partition(folder: Path, parts: int = PARTS) -> Path:
    with Dataset(graph_file(folder / "g.npz")) as dataset:
        dataset.write((np.arange(N) % parts).astype(np.int32), parts, str(folder), "g", "random")
    return folder / "g.json"


@pytest.fixture
def json_file(tmp_path: Path) -> Path:
    return partition(tmp_path)


def load(json_file: Path, part: int = 0) -> Any:
    """Everything of a partition."""
    data = sar.load_dgl_partition_data(str(json_file), part, torch.device("cpu"))
    return data, data.all_shard_edges, data.edge_features


def damaged(json_file: Path, name: str, says: str) -> sar.FormatError:
    """Loading must fail for the file ``name``, with what was expected and found, the place, and the remedy."""
    with pytest.raises(sar.FormatError, match=says) as caught:
        load(json_file)
    error = caught.value
    assert Path(error.file).name == name and str(error).startswith(error.file)
    assert "expected " in str(error) and ", found " in str(error) and MEND in str(error)
    if error.offset >= 0:
        assert f" at byte {error.offset}: " in str(error)
    return error


@pytest.fixture
def session() -> Iterator[None]:
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    yield
    sar.comm.shutdown()


# ---- files -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["g.json", *(f"part0/{name}" for name in FILES)])
def test_a_missing_file(json_file: Path, name: str) -> None:
    (json_file.parent / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{json_file.parent / name}: no such file") as caught:
        load(json_file)
    assert name == "g.json" or f"named by {json_file}" in str(caught.value)
    if name.startswith("part0"):
        load(json_file, 1)  # the other worker's files are whole


def test_a_directory_in_place_of_a_file(json_file: Path) -> None:
    with pytest.raises(IsADirectoryError, match=str(json_file.parent)):
        load(json_file.parent)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file(json_file: Path, name: str) -> None:
    path = json_file.parent / "part0" / name
    whole = path.read_bytes()
    load(json_file)
    long = len(whole)
    for keep in sorted({0, 1, 7, 8, 20, 31, long // 3, long // 2, *range(max(0, long - 700), long, 13)}):
        path.write_bytes(whole[:keep])
        error = damaged(json_file, name, "the end of the file|left of the file")
        assert 0 <= error.offset <= keep


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_magic_number(json_file: Path, name: str) -> None:
    path = json_file.parent / "part0" / name
    whole = path.read_bytes()
    path.write_bytes(b"PK\3\4 zip" + whole[8:])
    assert damaged(json_file, name, "the magic number 0x[0-9a-f]+ of a file of (graphs|tensors)").offset == 0
    at = whole.index(ARRAY)
    path.write_bytes(whole[:at] + b"\0" * 8 + whole[at + 8 :])
    assert damaged(json_file, name, "magic number").offset == at


@pytest.mark.parametrize("size", [-1, 1 << 20, 1 << 40, 1 << 61, (1 << 62) + 1, (1 << 63) - 1])
@pytest.mark.parametrize("name", FILES)
def test_array_sizes_that_overflow_or_exceed_the_file(json_file: Path, name: str, size: int) -> None:
    """Products of such sizes wrap around, so that a careless reader would see a small array."""
    path = json_file.parent / "part0" / name
    whole = path.read_bytes()
    shape = whole.index(ARRAY) + 32
    path.write_bytes(whole[:shape] + struct.pack("<q", size) + whole[shape + 8 :])
    assert damaged(json_file, name, re.escape(str(size))).offset == shape
    count = 4104 if name == "graph.dgl" else 8  # of labels; of tensors
    path.write_bytes(whole[:count] + struct.pack("<q", size) + whole[count + 8 :])
    assert 0 <= damaged(json_file, name, str(size % (1 << 64))).offset <= count + 8


def test_too_many_dimensions(json_file: Path) -> None:
    path = json_file.parent / "part0" / "node_feat.dgl"
    whole = path.read_bytes()
    at = whole.index(ARRAY) + 24
    path.write_bytes(whole[:at] + struct.pack("<i", 1 << 30) + whole[at + 4 :])
    assert damaged(json_file, "node_feat.dgl", "dimensions").offset == at


def test_feature_rows_that_are_not_the_partitions_nodes(json_file: Path) -> None:
    here, there = (json_file.parent / part / "node_feat.dgl" for part in ("part0", "part1"))
    with Dataset(graph_file(json_file.parent / "h.npz")) as dataset:
        dataset.write((np.arange(N) >= 11).astype(np.int32), PARTS, str(json_file.parent / "h"), "h", "random")
    shutil.copy(json_file.parent / "h" / "part0" / "node_feat.dgl", here)  # 11 rows for 15 nodes
    damaged(json_file, "node_feat.dgl", '15.*"_N/features".*, found .*11')
    load(json_file, 1)
    assert there.exists()


def test_ids_that_are_not_the_partitions(json_file: Path) -> None:
    path = json_file.parent / "part0" / "graph.dgl"
    whole = path.read_bytes()
    at = whole.index(struct.pack("<3q", 0, 1, 2))  # ids of nodes
    path.write_bytes(whole[: at + 8] + struct.pack("<q", 1 << 50) + whole[at + 16 :])
    assert damaged(json_file, "graph.dgl", f"expected id 1, .* found {1 << 50}").offset == at + 8
    # one part, the edge id 0 twice
    (json_file.parent / "one").mkdir()
    single = partition(json_file.parent / "one", 1)
    path = single.parent / "part0" / "graph.dgl"
    whole, ids = path.read_bytes(), struct.pack(f"<{E}q", *range(E))
    at = whole.index(ids)
    path.write_bytes(whole[: at + 8] + ids[:8] + whole[at + 16 :])
    damaged(single, "graph.dgl", "each edge id once, found 0 again")
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    try:
        graph = sar.construct_full_graph(sar.load_dgl_partition_data(str(single), 0))
        graph.srcdata["h"], graph.edata["w"] = torch.ones(N, 1), torch.ones(E, 1)
        with pytest.raises(sar.FormatError, match=f"id of its own.*id 0 is there twice.*{MEND}"):
            graph.update_all(sar.function.u_mul_e("h", "w", "m"), sar.function.sum("m", "h"))  # needs edges in order
    finally:
        sar.comm.shutdown()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a JSON object"),
        ("name: g", "a JSON object, found invalid character"),
        ('{"graph_name": "g", "num_parts": ', "unexpected end of JSON"),
        ("[]", "a JSON object"),
        ("{}", 'the key "graph_name", a string, found no such key'),
    ],
)
def test_a_description_that_is_no_json(json_file: Path, text: str, says: str) -> None:
    json_file.write_text(text)
    damaged(json_file, "g.json", says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_parts": 3}, '3 ranges of type "_N" in "node_map", one for each partition, found 2'),
        ({"num_parts": 0}, '"num_parts" to be at least 1, found 0'),
        ({"num_parts": "two"}, '"num_parts" to be a whole number'),
        ({"num_nodes": N + 1}, f"cover all {N + 1} ids"),
        ({"part-0": {}}, '"part-0"'),
        ({"node_map": {"_N": [[0, 15], [16, 30]]}}, "to begin at 15"),
    ],
)
def test_a_description_that_contradicts_itself(json_file: Path, change: dict[str, Any], says: str) -> None:
    json_file.write_text(json.dumps({**json.loads(json_file.read_text()), **change}))
    damaged(json_file, "g.json", says)


def test_more_workers_than_parts(json_file: Path, two: Workers) -> None:
    for part in (-1, PARTS, 7):
        says = f"partition {part} asked for.*the graph has 2 .0 to 1.*start 2 workers, or partition the graph into"
        with pytest.raises(ValueError, match=says):
            load(json_file, part)
    # the number of workers, where the partition exists
    for parts in (1, 3):
        other = json_file.parent / str(parts)
        other.mkdir()
        message = two.run("cases:load_message", json_file=str(partition(other, parts)))[0]
        assert f"{parts} partitions, but 2 workers" in message
        assert f"start {parts} workers, or partition the graph into 2" in message


def test_npz_files(tmp_path: Path) -> None:
    """What ``sar partition`` reads."""
    good = Path(graph_file(tmp_path / "good.npz")).read_bytes()
    ends = np.zeros((2, E), np.int64)

    def refused(error: type[Exception], says: str, content: bytes | None = None, **changes: Any) -> None:
        path = tmp_path / "bad.npz"
        graph_file(path, **changes)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(error, match=says) as caught, Dataset(str(path)) as dataset:
            dataset.assign("contiguous", 2, 0)
        assert "bad.npz" in str(caught.value)

    with pytest.raises(FileNotFoundError, match="none.npz"):
        Dataset(str(tmp_path / "none.npz"))
    for content in (b"", b"not a zip", good[:-30], good[: len(good) // 2]):
        refused(sar.FormatError, "a zip of arrays as numpy.savez writes it", content)
    for rows in (90, 10**18, 2**62 + 30, 10**30):
        shape = f"({rows}, 3), }}".encode()
        larger = good.replace(b"(30, 3), }".ljust(len(shape)), shape)
        assert len(larger) == len(good) and larger != good
        refused(sar.FormatError, f"{rows}", larger)
    refused(sar.FormatError, "30 rows of \"y\", as many as \"x\" has, found 29", y=np.arange(29))
    refused(sar.FormatError, "\"edge_index\" of whole numbers, found float64", edge_index=ends.astype(float))
    refused(sar.FormatError, "save its transpose", edge_index=ends.T)
    refused(sar.FormatError, "edge 0 between two of the 30 nodes, found 30 -> 30", edge_index=ends + 30)
    refused(sar.FormatError, "edge 0 between two of the 30 nodes, found -1 -> -1", edge_index=ends - 1)
    refused(sar.FormatError, "pickled Python objects.*save numbers", odd=np.array([{}], dtype=object))
    refused(sar.FormatError, "strings.*leave them out", odd=np.array(["a"]))
    refused(sar.FormatError, "big-endian numbers.*newbyteorder", odd=np.zeros(3, ">f4"))


def test_arguments_of_partitioning(tmp_path: Path) -> None:
    with Dataset(graph_file(tmp_path / "g.npz")) as dataset:
        fine = np.zeros(N, np.int32)
        for assignment, parts, name, error, says in (
            (fine, 0, "g", ValueError, "0 partitions: at least 1"),
            (fine[:5], 1, "g", ValueError, "an assignment of 5 nodes for a graph of 30"),
            (fine + 3, 2, "g", ValueError, "node 0 is assigned to partition 3: partitions are 0 to 1"),
            (fine - 1, 2, "g", ValueError, "node 0 is assigned to partition -1"),
            (fine, 1, "a/b", ValueError, '"a/b" cannot be the name of a graph'),
            (fine.astype(np.int64), 1, "g", TypeError, "assignment is int64, and must be int32"),
        ):
            with pytest.raises(error, match=says):
                dataset.write(assignment, parts, str(tmp_path / "out"), name, "random")
        assert not (tmp_path / "out").exists()
        with pytest.raises(NotADirectoryError, match="g.npz"):
            dataset.write(fine, 1, str(tmp_path / "g.npz"), "g", "random")
        with pytest.raises(ValueError, match="no partitioning method \"best\" here: random and contiguous"):
            dataset.assign("best", 2, 0)


# ---- workers that cannot meet --------------------------------------------------


def test_a_rank_that_is_not_below_the_world_size() -> None:
    for rank in (2, 5, -1):
        with pytest.raises(ValueError, match=f"rank {rank} is outside 0..1: world_size is 2"):
            sar.initialize_comms(rank, 2, "127.0.0.1", "sar", master_port_number=free_port())


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_START_TIMEOUT", "60")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(sar.RendezvousError, match=f"port {port} on 127.0.0.1 is in use.*choose another"):
            sar.initialize_comms(0, 2, "127.0.0.1", "sar", master_port_number=port)
        assert time.monotonic() - began < 10, "the start-up deadline was waited for"
    assert not sar.comm.is_initialized()


def test_an_unreachable_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_START_TIMEOUT", "1.5")
    port = free_port()
    for address in ("127.0.0.1", "no-such-host.invalid"):
        began = time.monotonic()
        with pytest.raises(sar.RendezvousError, match=f"{address}:{port} after 1.5 s.*is rank 0 running, are address"):
            sar.initialize_comms(1, 2, address, "sar", master_port_number=port)
        assert time.monotonic() - began < 8


def test_workers_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_START_TIMEOUT", "1.5")
    port = free_port()
    says = f"ranks 1, 2 of 3 did not come to 127.0.0.1 port {port} within 1.5 s"
    with pytest.raises(sar.RendezvousError, match=says):
        sar.initialize_comms(0, 3, "127.0.0.1", "sar", master_port_number=port)


def test_a_master_port_that_speaks_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_START_TIMEOUT", "4")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def greet() -> None:
            while True:
                try:
                    connection, _ = other.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(sar.RendezvousError, match=f"127.0.0.1:{other.getsockname()[1]}"):
            sar.initialize_comms(1, 2, "127.0.0.1", "sar", master_port_number=other.getsockname()[1])
        other.shutdown(socket.SHUT_RDWR)


def test_two_workers_of_one_rank(tmp_path: Path) -> None:
    """All that take part are told, and soon."""
    began = time.monotonic()
    reports = together(
        tmp_path,
        """
        try:
            join(min(rank, 1), 3)
        except sar.RendezvousError as error:
            print(error)
        """,
        3,
    )
    assert time.monotonic() - began < 45
    for rank, (code, out, err) in enumerate(reports):
        assert code == 0, err
        says = r"two workers have rank 1: process \d+ on \S+ and process \d+ on .*rank of its own"
        assert re.search(says, out), (rank, out)


# ---- tensors -----------------------------------------------------------------


class OnCuda:
    """What the package sees of a CUDA tensor, which torch cannot make everywhere."""

    device, dtype, shape = torch.device("cuda:0"), torch.float32, (2, 3)

    def data_ptr(self) -> int:
        raise AssertionError("the memory of a CUDA tensor was asked for")

    stride = data_ptr


def test_cuda_tensors_are_refused(session: None, json_file: Path) -> None:
    with pytest.raises(TypeError, match=r"CPU tensors; this one, of shape \[2, 3\], is on cuda:0: move it with .cpu"):
        _native.tensor(OnCuda())
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
        (torch.ones(n, 2, dtype=torch.complex64), TypeError, r"srcdata\['h'\] is torch.complex64.*float32 or float64"),
        (torch.ones(n, 2, dtype=torch.bool), TypeError, "is torch.bool.*float32 or float64"),
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
    for rank, found in enumerate(two.run("test_bad_input:nan_is_carried")):
        out, grad_x, grad_w, total, largest, normal = map(np.array, found)
        # rank 1 reads rank 0: 0 * nan and 0 * inf are nan; rank 0 reads rank 1, whose numbers are finite
        assert isnan(out).tolist() == ([True, True, False] if rank == 1 else [False] * 3)
        assert isnan(grad_x).tolist() == [rank == 1] * 3, "rank 1's row goes to rank 0, whose gradient is NaN"
        assert isnan(grad_w).all(), "NaN in the gradient at rank 0, in the source row at rank 1"
        assert isnan(total).tolist() == [True, False, False] and np.isinf(total[1])
        assert isnan(largest).tolist() == [True, False, False]
        assert isnan(normal).tolist() == [True, True, False]


# ---- before and after --------------------------------------------------------


def test_use_after_shutdown(json_file: Path) -> None:
    def join() -> None:
        sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())

    join()
    single = json_file.parent / "one"
    single.mkdir()
    data = sar.load_dgl_partition_data(str(partition(single, 1)), 0)
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


# ---- an exception in one rank's script ------------------------------------------

PREAMBLE = """\
import atexit, os, sys, time
import torch
import sar
import sar.function as fn
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def join(rank, world):
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    sar.initialize_comms(rank, world, address, "sar", master_port_number=port)

"""


def write_script(folder: Path, body: str) -> Path:
    lines = body.strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    path = folder / "script.py"
    path.write_text(PREAMBLE + "\n".join(line[indent:] for line in lines) + "\n")
    return path


def environment(**more: object) -> dict[str, str]:
    here = {"OMP_NUM_THREADS": "1", "SAR_START_TIMEOUT": "60", "SAR_TIMEOUT": "90"}
    return {**os.environ, **here, **{k: str(v) for k, v in more.items()}}


def together(folder: Path, body: str, world: int) -> list[tuple[int, str, str]]:
    """Plain processes, started by nobody in particular: exit code, output and errors of each rank."""
    path = write_script(folder, body)
    place = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    processes = [
        subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(RANK=rank, **place),
        )
        for rank in range(world)
    ]
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return [(process.returncode, *output) for process, output in zip(processes, outputs)]


FAILING = """
    join(rank, world)
    for step in range(1000):
        if rank == 1 and step == 3:
            print("FAILED", time.time(), flush=True)
            atexit.register(time.sleep, 2)  # the others end first
            raise LookupError("the labels of rank 1 are gone")
        try:
            sar.comm.all_reduce(torch.ones(1000), "sum")
        except sar.RemoteError as error:
            print("TOLD", time.time(), error.rank, flush=True)
            raise
"""


def test_an_exception_among_plain_processes(tmp_path: Path) -> None:
    reports = together(tmp_path, FAILING, 3)
    assert [code for code, *_ in reports] == [1, 1, 1]
    _, out, err = reports[1]
    failed = float(out.split("FAILED ")[1].split()[0])
    assert err.rstrip().endswith("LookupError: the labels of rank 1 are gone") and "RemoteError" not in err
    for rank in (0, 2):
        _, out, err = reports[rank]
        told, culprit = out.split("TOLD ")[1].split()[:2]
        assert culprit == "1" and float(told) - failed < 2.0
        assert re.search(r"RemoteError: rank 1 on \S+ failed: Traceback", err), err
        assert "LookupError: the labels of rank 1 are gone" in err and "script.py" in err


def launched(folder: Path, body: str, world: int, *words: str) -> tuple[subprocess.CompletedProcess[str], float]:
    command = [sys.executable, "-m", "sar", "launch", "-n", str(world), *words, str(write_script(folder, body))]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    return done, time.monotonic() - began


def closing(done: subprocess.CompletedProcess[str]) -> str:
    """The launcher's last words."""
    return done.stderr[done.stderr.rindex("sar launch: ") :]


def test_an_exception_under_the_launcher(tmp_path: Path) -> None:
    done, seconds = launched(tmp_path, FAILING, 3)
    assert done.returncode == 1 and seconds < 60, done.stderr
    # the cause is named, not the ranks that were told of it
    assert "rank 1 ended with exit code 1" in closing(done), done.stderr
    assert "LookupError: the labels of rank 1 are gone" in closing(done), done.stderr
    for rank in (0, 2):
        assert f"[{rank}] sar.errors.RemoteError: rank 1 on" in done.stderr, done.stderr


def test_an_exception_before_the_workers_meet(tmp_path: Path) -> None:
    """The others wait in initialize_comms, whose deadline is far away: the launcher ends them."""
    body = """
        if rank == 1:
            raise LookupError("no data here")
        join(rank, world)
    """
    done, seconds = launched(tmp_path, body, 2, "--grace", "1")
    assert done.returncode == 1 and seconds < 40
    assert "rank 1 ended with exit code 1" in closing(done) and "LookupError: no data here" in closing(done)


def test_an_exit_code_in_the_middle(tmp_path: Path) -> None:
    """Not an exception, and yet the others must not wait for long."""
    body = """
        join(rank, world)
        for step in range(1000):
            if rank == 1 and step == 3:
                sys.exit(5)
            sar.comm.all_reduce(torch.ones(1000), "sum")
    """
    done, seconds = launched(tmp_path, body, 2)
    assert done.returncode == 5 and seconds < 60
    assert "rank 1 ended with exit code 5" in closing(done)
    assert "[0] sar.errors.PeerLostError: lost rank 1 on" in done.stderr and "it has shut down" in done.stderr


def test_bad_arguments_on_one_rank(tmp_path: Path) -> None:
    """One rank's features are wrong: its own error is a plain ValueError, and the others hear of it."""
    body = """
        import numpy as np
        from sar.common_tuples import PartitionData, ShardEdgesAndFeatures
        join(rank, world)
        ring = ShardEdgesAndFeatures((torch.tensor([(rank + 1) % world]), torch.tensor([rank])), {})
        data = PartitionData([ring], [(r, r + 1) for r in range(world)], {}, ["_N"], [("_N", "_E", "_N")], None)
        graph = sar.construct_full_graph(data)
        graph.srcdata["h"] = torch.ones(2 if rank == 1 else 1, 3)
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
    """
    reports = together(tmp_path, body, 2)
    says = "srcdata['h'] has shape (2, 3), but this worker has 1 nodes"
    assert says in reports[1][2] and "ValueError" in reports[1][2] and "RemoteError" not in reports[1][2]
    assert "RemoteError: rank 1 on" in reports[0][2] and says in reports[0][2]
