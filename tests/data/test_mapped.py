"""Features that stay in their files (``Config.features = "mapped"``): the same bits, whoever maps them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sar
from bench import memory_limit
from sar._engine import mappings
from sar.autograd.fused import row_blocks
from sar.partitioning.dataset import Dataset
from sar.partitioning.parts import PartsOptions, write_parts
from sar.profiling.plan import estimate_memory
from tests.data import cases_mapped
from tests.data.cases_mapped import load
from tests.support import warm
from tests.support.pool import Pool
from tests.support.scripts import together
from tests.support.sessions import Workers
from tests.support.worker import settings

N, E = 61, 300
ALIGNED = "features" + 29 * "_"
"""A name that puts the first feature of a file of DGL's format at byte 128."""
LAYOUTS = [("dgl", ALIGNED), ("dgl", "features"), ("sar", "features")]
"""Formats and names: features that are mapped as they lie, that are copied first, and again as they lie."""


def partition(
    folder: Path, parts: int, width: int = 7, dtype: str = "float32", form: str = "dgl", name: str = ALIGNED
) -> str:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((N, width)).astype(dtype)
    np.savez(folder / "g.npz", **{"edge_index": rng.integers(0, N, (2, E)), name: x, "labels": np.arange(N) % 4})
    with Dataset(str(folder / "g.npz")) as dataset:
        assignment = rng.integers(0, parts, N).astype(np.int32)
        write_parts(dataset, assignment, parts, str(folder), PartsOptions("g", "random", form))
    return str(folder / "g.json")


def features_file(json_file: str, part: int) -> Path:
    """The file that holds the features of a part."""
    files = [*Path(json_file).parent.glob(f"part{part}/**/*feat*.*")]
    (file,) = (f for f in files if f.suffix == ".npy" or f.name == "node_feat.dgl")
    return file


def drop(file: Path) -> None:
    """Takes a file out of the page cache."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_blocks(x: torch.Tensor, file: Path) -> torch.Tensor:
    """The rows as layers read them, from the disk."""
    drop(file)
    return torch.cat([rows.clone() for _, rows in row_blocks.blocks(x)])


def feature(data: Any) -> torch.Tensor:
    return next(t for name, t in data.node_features.items() if name.startswith("_N/features"))


@pytest.mark.parametrize(("form", "name"), LAYOUTS)
def test_a_mapped_feature(tmp_path: Path, form: str, name: str) -> None:
    json_file = partition(tmp_path, 2, form=form, name=name)
    file = features_file(json_file, 1)
    content, before = file.read_bytes(), sar.memory_stats()
    read, data = feature(load(json_file, 1, False)), load(json_file, 1, True)
    x = feature(data)
    assert torch.equal(x, read) and x.data_ptr() % 64 == 0
    assert sar.memory_stats()["mapped"]["live"] > before["mapped"]["live"]
    # as it lies, or from a copy without a name
    places = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    assert len(places) == 1 and places[0].endswith("(deleted)") == ((form, name) == LAYOUTS[1]), places
    address = f"{x.data_ptr() & ~4095:x}-"
    assert places[0].startswith(address)
    # labels are read
    assert not any(b <= data.node_features["_N/labels"].data_ptr() < e for b, e in mappings._live.values())
    assert torch.equal(in_blocks(x, file), read)
    # written to in place, the tensor changes, the file does not
    x.mul_(2)
    assert torch.equal(x, read * 2) and torch.equal(in_blocks(x, file), read * 2) and file.read_bytes() == content
    # the map goes with the last tensor over it
    row = x[3]
    del x, data
    gc.collect()
    assert torch.equal(row, read[3] * 2)
    del row
    gc.collect()
    assert sar.memory_stats()["mapped"]["live"] == before["mapped"]["live"] and not mappings._live


def test_a_part_without_nodes(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    np.savez(tmp_path / "g.npz", edge_index=rng.integers(0, N, (2, E)), features=rng.random((N, 3), dtype=np.float32))
    with Dataset(str(tmp_path / "g.npz")) as dataset:
        dataset.write_parts(np.zeros(N, np.int32), 2, str(tmp_path), {"name": "g", "method": "given"})
    x = load(str(tmp_path / "g.json"), 1, True).node_features["_N/features"]
    assert x.shape == (0, 3) and x.dtype == torch.float32


def test_bad_setting(tmp_path: Path) -> None:
    json_file = partition(tmp_path, 1)
    says = "sar.Config.features is 'disk': set it to 'memory' or 'mapped'"
    with settings(features="disk"), pytest.raises(ValueError, match=says):
        sar.load_dgl_partition_data(json_file, 0)


@pytest.mark.parametrize(("form", "name"), LAYOUTS)
def test_damage_is_found_when_it_is_loaded(tmp_path: Path, form: str, name: str) -> None:
    json_file = partition(tmp_path, 1, form=form, name=name)
    file = features_file(json_file, 0)
    content = bytearray(file.read_bytes())
    content[300] ^= 4
    file.write_bytes(content)
    with pytest.raises(sar.FormatError, match="as written, by its checksum"):
        load(json_file, 0, True)


def test_blocks_of_rows() -> None:
    """Blocks cover all rows once, in order, and hold 16 MiB at most where rows are not very wide."""
    for rows, width in ((0, 5), (1, 5), (3072, 5), (24577, 5), (100_000, 3), (9000, 5000)):
        x = torch.empty(1, 1).expand(rows, width)
        step = row_blocks.block_rows(x)
        assert step % row_blocks.UNIT == 0 and (step == row_blocks.UNIT or step * width * 4 <= row_blocks.BLOCK_BYTES)
        found = list(row_blocks.blocks(x))
        assert [i for at, _ in found for i in range(rows)[at]] == list(range(rows))
        assert all(len(part) == len(range(rows)[at]) for at, part in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_by_blocks(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(row_blocks, "UNIT", 3)
    monkeypatch.setattr(row_blocks, "MOST", 6)
    for n, m in ((0, 0), (1, 1), (6, 6), (7, 7), (20, 20), (20, 7), (20, 6)):
        x, w, v = torch.randn(n, 5, dtype=dtype), torch.randn(4, 5, dtype=dtype), torch.randn(1, 5, dtype=dtype)
        for found, weight in zip(row_blocks.products(x, w, v), (w, v)):
            torch.testing.assert_close(found, x @ weight.t())
        for found, expected in zip(row_blocks.products(x, w, v, own=m), (x @ w.t(), x[:m] @ v.t())):
            torch.testing.assert_close(found, expected)
        f, g = torch.randn(n, 2, dtype=dtype), torch.randn(m, 3, dtype=dtype)
        for found, factor in zip(row_blocks.sums(x, f, g), (f, g)):
            torch.testing.assert_close(found, factor.t() @ x[: len(factor)])


MODELS = [("mean", "dgl"), ("mean", "sar"), ("gat", "dgl"), ("gcn", "sar"), ("gcn", "dgl"), ("pool", "sar")]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 47])
def test_same_bits(few: Workers, tmp_path: Path, width: int, dtype: str) -> None:
    """Whether all workers map, one alone, or none: losses, parameters and what is sent are the same."""
    every = MODELS if (width, dtype) == (47, "float32") else MODELS[1:3]
    for form, name in LAYOUTS:
        models = every if name == ALIGNED else every[:1]
        (tmp_path / form / name).mkdir(parents=True)
        # features wider than the result and narrower
        json_file = partition(tmp_path / form / name, few.world, 7, dtype, form, name)
        for model, library in models:
            given = {"json_file": json_file, "model": model, "library": library, "dtype": dtype, "width": width}
            runs = [
                few.run(cases_mapped.train, None, mapped=choice, **given)
                for choice in ([False] * few.world, [True] * few.world, [True] + [False] * (few.world - 1))
            ]
            for choice, run in zip(("all", "one"), runs[1:]):
                for rank, (found, expected) in enumerate(zip(run, runs[0])):
                    same = {key: found[key] for key in ("losses", "parameters", "sent")}
                    assert same == {key: expected[key] for key in same}, (choice, rank, model, library)
                    assert (found["mapped"] > 0) == (choice == "all" or rank == 0) and not found["left"]


@pytest.mark.parametrize("form", ["dgl", "sar"])
def test_a_file_that_is_cut_off(pool: Pool, tmp_path: Path, form: str) -> None:
    """Where blocks are read, the size of the file is looked at before: an error, and the process lives."""
    json_file = partition(tmp_path, 1, form=form)
    file = features_file(json_file, 0)
    (found,) = Workers(pool, 1, "shm").run(cases_mapped.cut_off, None, json_file=json_file, file=str(file))
    assert f"{file} at byte 100" in found and "the end of the file" in found


def test_rows_that_are_cut_off_kill(tmp_path: Path) -> None:
    """Reading rows that are not there any longer ends the process at once; the others are told."""
    (tmp_path / "g").mkdir()
    json_file = partition(tmp_path / "g", 2, 4000)
    body = f"""
    join(rank, world)
    sar.Config.features = "mapped"
    data = sar.load_dgl_partition_data({json_file!r}, rank)
    x = next(t for name, t in data.node_features.items() if "features" in name)
    if rank == 0:
        os.truncate({str(features_file(json_file, 0))!r}, 100)
        print(x.sum())
    try:
        sar.comm.all_reduce(torch.ones(1))
    except sar.PeerLostError as error:
        print("lost", error.rank)
        os._exit(0)
    """
    found = together(tmp_path, body, 2)
    assert found[0][0] == -signal.SIGBUS and found[1][:2] == (0, "lost 0\n"), found


def test_prediction(tmp_path: Path) -> None:
    """`sar plan --mapped` leaves mapped features out, and nothing else."""
    json_file = partition(tmp_path, 2)
    read, mapped = (estimate_memory(json_file, ["sage:4"], features=f) for f in ("memory", "mapped"))
    for rank, (before, after) in enumerate(zip(read, mapped)):
        size = feature(load(json_file, rank, False)).nbytes
        assert (before.features - after.features, before.peak - after.peak) == (size, size)
        assert after._replace(features=before.features, peak=before.peak) == before
    with pytest.raises(ValueError, match="features 'disk' is unknown: give 'memory' or 'mapped'"):
        estimate_memory(json_file, ["sage:4"], features="disk")


TRAIN = """
import os, sys, torch, sar
from sar.distributed.network import free_port
group, json_file, features = sys.argv[1:]
torch.set_num_threads(1)
sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
torch.manual_seed(0)
layer = sar.nn.SAGEConv(4096, 8, "mean")
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
layer.fc_self(torch.ones(3100, 4096)).sum().backward()  # what a first product takes for good
if group:
    with open(os.path.join(group, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))
sar.Config.features = features
data = sar.load_dgl_partition_data(json_file, 0)
graph = sar.construct_full_graph(data)
(x,) = (t for name, t in data.node_features.items() if "features" in name)
for _ in range(3):
    optimizer.zero_grad()
    loss = layer(graph, x).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
"""


@pytest.mark.parametrize("form", ["dgl", pytest.param("sar", marks=pytest.mark.full)])
def test_three_times_a_memory_limit(tmp_path: Path, form: str) -> None:
    """Features of 96 MiB, where what comes after the start may take 32 MiB, the page cache included."""
    rows = 6144
    rng = np.random.default_rng(8)
    x = rng.standard_normal((rows, 4096), dtype=np.float32)
    np.savez(tmp_path / "g.npz", **{"edge_index": rng.integers(0, rows, (2, 2 * rows)), ALIGNED: x})
    with Dataset(str(tmp_path / "g.npz")) as dataset:
        write_parts(dataset, np.zeros(rows, np.int32), 1, str(tmp_path), PartsOptions("g", "none", form))
    file = features_file(str(tmp_path / "g.json"), 0)

    def train(features: str, group: str) -> tuple[int, str]:
        drop(file)
        words = ["-c", TRAIN, group, str(tmp_path / "g.json"), features]
        if not group:
            return (done := warm.run(words)).returncode, done.stdout
        # a fork would copy pages of its parent into the group
        done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, timeout=300, check=False)
        return done.returncode, done.stdout

    try:
        with memory_limit.limited(32 << 20) as group:
            limited = train("mapped", group.folder)
            if form == "dgl":
                assert train("memory", group.folder)[0] == -signal.SIGKILL  # the limit holds
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    assert limited == train("memory", "")
    assert limited[0] == 0 and limited[1].count("0x") == 3
