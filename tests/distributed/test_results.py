"""Rows written at their original ids, by all workers together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import sar.cli
from sar.errors import FormatError
from sar.results import npy
from sar.results.gather import gather
from tests.distributed import cases_results
from tests.support import ROOT
from tests.support.graphs import Graph, make
from tests.support.partitions import partition
from tests.support.pool import Failure
from tests.support.sessions import Workers

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]
SHAPES: list[list[int]] = [[], [5], [2, 3]]


def write(
    workers: Workers, path: Path, kind: str, dtype: str, shape: list[int], ids: str = "all", round_bytes: int = 1 << 20
) -> np.ndarray:
    """Writes rows at shuffled ids, and gives what is expected."""
    graph = make(kind, workers.world, seed=3)
    numbers = np.random.default_rng(4).permutation(graph.num_nodes)
    arguments = graph.shares()
    common = {"numbers": numbers, "dtype": dtype, "shape": shape, "kind": ids, "round_bytes": round_bytes}
    workers.run(cases_results.written, arguments, path=str(path), **common)
    return cases_results.values(np.arange(graph.num_nodes), dtype, shape).float().numpy()


def left_behind(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("dtype", DTYPES)
def test_npy(workers: Workers, tmp_path: Path, dtype: str) -> None:
    for kind in ("random", "empty_worker", "one_node"):
        for shape in SHAPES:
            path = tmp_path / "pred.npy"
            expected = write(workers, path, kind, dtype, shape)
            found = np.load(path, mmap_mode="r")
            assert str(found.dtype) == dtype.replace("bfloat16", "float32")
            np.testing.assert_array_equal(found.astype("float32"), expected)
    assert left_behind(tmp_path) == ["pred.npy"]


@pytest.mark.parametrize("round_bytes", [1, 100, 1 << 14])
def test_npy_in_rounds(two: Workers, tmp_path: Path, round_bytes: int) -> None:
    """Rows so wide that each worker has a slab, and few of them in a round."""
    expected = write(two, tmp_path / "pred.npy", "random", "float32", [300], "own", round_bytes)
    np.testing.assert_array_equal(np.load(tmp_path / "pred.npy"), expected)


@pytest.mark.parametrize("rows", [0, 1, 5, 1000, 12345])
@pytest.mark.parametrize("row_bytes", [1, 6, 16, 688, 4096, 10000])
@pytest.mark.parametrize("world", [1, 3, 8])
def test_every_row_falls_to_one_worker(rows: int, row_bytes: int, world: int) -> None:
    plan = npy.layout(rows, row_bytes, world)
    parts = [plan.part(rank, turn) for rank in range(world) for turn in range(plan.rounds)]
    assert [row for begin, end in parts for row in range(begin, end)] == list(range(rows))
    assert all((npy.NPY_BEGIN + rank * plan.slab * row_bytes) % npy.NPY_BEGIN == 0 for rank in range(world))
    assert max(end - begin for begin, end in parts) * row_bytes * world <= max(npy.ROUND_BYTES, row_bytes * world)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parquet(few: Workers, tmp_path: Path, dtype: str) -> None:
    for kind in ("random", "empty_worker"):
        for shape in SHAPES[:2]:
            path = tmp_path / "pred.parquet"
            expected = write(few, path, kind, dtype, shape, "own")
            files = sorted(path.iterdir())
            assert [f.name for f in files] == [f"part-{r:05d}-of-{few.world:05d}.parquet" for r in range(few.world)]
            table = pa.concat_tables(pq.read_table(f) for f in files)
            assert table.column_names == ["id", "value"]
            ids = table.column("id").to_numpy()
            order = np.argsort(ids)
            np.testing.assert_array_equal(ids[order], np.arange(len(expected)))
            rows = np.array(table.column("value").to_pylist(), dtype="float32")[order]
            np.testing.assert_array_equal(rows, expected)

            joined = tmp_path / "all.parquet"
            assert sar.cli.main(["gather", str(path), "-o", str(joined)]) == 0
            assert pq.read_table(joined).column("id").to_pylist() == list(range(len(expected)))
            assert gather(str(path), str(tmp_path / "all.npy")).rows == len(expected)
            array = np.load(tmp_path / "all.npy")
            assert array.dtype == np.dtype(dtype.replace("bfloat16", "float32"))
            np.testing.assert_array_equal(array.astype("float32"), expected)


def test_gather_in_small_batches(two: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sar.results.gather.BATCH_BYTES", 1)
    graph = Graph(5000, np.zeros(0, np.int64), np.zeros(0, np.int64), np.array([0, 100, 5000]))
    numbers = np.random.default_rng(5).permutation(5000)
    common = {"numbers": numbers, "dtype": "int64", "shape": [], "kind": "all", "round_bytes": 1 << 20}
    two.run(cases_results.written, graph.shares(), path=str(tmp_path / "p.parquet"), **common)
    gather(str(tmp_path / "p.parquet"), str(tmp_path / "p.npy"))
    expected = cases_results.values(np.arange(5000), "int64", []).numpy()
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), expected)


def test_columns(two: Workers, tmp_path: Path) -> None:
    graph = make("random", 2)
    arguments = graph.shares()
    for names, expected in ((["yes", "no"], ["id", "yes", "no"]), (None, ["id", "class", "score"])):
        path = tmp_path / f"{len(expected)}{names}.parquet"
        two.run(cases_results.columns, arguments, path=str(path), names=names)
        table = pq.read_table(path)
        assert table.column_names == expected
        ids = table.column("id").to_numpy()
        if names:
            np.testing.assert_array_equal(table.column("no").to_numpy(), -ids)
        else:
            np.testing.assert_array_equal(table.column("class").to_numpy(), ids % 3)
            assert table.column("score").type == pa.list_(pa.field("element", pa.float64(), nullable=False), 1)


def test_of_partitions(two: Workers, tmp_path: Path) -> None:
    """Features go back to where they came from."""
    path = partition(tmp_path / "parts" if (tmp_path / "parts").mkdir() is None else tmp_path)
    original = np.load(tmp_path / "parts" / "g.npz")
    two.run(cases_results.of_partition, json=str(path), out=str(tmp_path / "{1}.npy"), features=["_N/features"])
    np.testing.assert_array_equal(np.load(tmp_path / "features.npy"), original["x"])
    # ids of the users, which a partition may carry
    names = np.array([f"node {n * 7919 % 1000:03d}" for n in range(30)])
    for part in range(2):
        data = sar.load_dgl_partition_data(str(path), part, torch.device("cpu"))
        ids = names[data.node_features["_N/orig_id"].numpy()]
        pq.write_table(pa.table({"id": ids}), path.parent / f"part{part}" / "ids__N.parquet")
    two.run(cases_results.of_partition, json=str(path), out=str(tmp_path / "{1}.parquet"), features=["_N/labels"])
    for file in (tmp_path / "labels.parquet").iterdir():
        table = pq.read_table(file)
        assert table.column("id").to_pylist() == sorted(table.column("id").to_pylist())
    gather(str(tmp_path / "labels.parquet"), str(tmp_path / "all.parquet"))
    table = pq.read_table(tmp_path / "all.parquet")
    assert table.column("id").to_pylist() == sorted(names.tolist())
    assert dict(zip(*table.to_pydict().values())) == dict(zip(names.tolist(), original["y"].tolist()))
    with pytest.raises(ValueError, match="the ids are string: write .parquet"):
        gather(str(tmp_path / "labels.parquet"), str(tmp_path / "all.npy"))
    # a file of ids that is not of these nodes
    pq.write_table(pa.table({"id": names[:3]}), path.parent / "part1" / "ids__N.parquet")
    arguments = {"json": str(path), "out": str(tmp_path / "x.parquet"), "features": ["_N/labels"]}
    first, second = two.attempt(cases_results.of_partition, **arguments)
    assert isinstance(first, Failure) and first.kind == "RemoteError" and "on rank 1" in first.message
    assert isinstance(second, Failure) and "has 3 ids for 15 nodes" in second.message
    assert not (tmp_path / "x.parquet").exists()


def test_several_node_types(two: Workers, tmp_path: Path) -> None:
    maker = ROOT / "examples" / "more" / "generate_hetero.py"
    subprocess.run([sys.executable, str(maker), str(tmp_path / "papers.npz")], check=True, timeout=120)
    words = ["--parts", "2", "--method", "random", "--out", str(tmp_path / "p")]
    assert sar.cli.main(["partition", str(tmp_path / "papers.npz"), *words]) == 0
    original = np.load(tmp_path / "papers.npz")
    kinds = sorted({name.split("/")[-1] for name in original.files})
    data = sar.load_dgl_partition_data(str(tmp_path / "p" / "papers.json"), 0, torch.device("cpu"))
    features = [name for name in data.node_features if name.endswith("/orig_id")]
    assert len(features) > 1, kinds
    two.run(
        cases_results.of_partition,
        json=str(tmp_path / "p" / "papers.json"),
        out=str(tmp_path / "{0}-{1}.npy"),
        features=features,
    )
    for name in features:
        kind = name.partition("/")[0]
        found = np.load(tmp_path / f"{kind}-orig_id.npy")
        np.testing.assert_array_equal(found, np.arange(len(found)))


# ---- what is refused -----------------------------------------------------------

REFUSED: list[tuple[str, int, str, str]] = [
    ("name", -1, "pred.npy", "name: rank 0 has 'pred0.npy', rank 1 has 'pred1.npy'"),
    ("elsewhere", 1, "pred.npy", "needs a filesystem that their hosts share"),
    ("suffix", -1, "pred.npy", "ends in .npy or .parquet"),
    ("folder", -1, "pred.npy", "No such file or directory"),
    ("rows", 1, "pred.npy", "expected ("),
    ("width", 1, "pred.npy", "columns: rank 0 has [['value', 'torch.float32', [2]]]"),
    ("empty", -1, "pred.npy", "its rows are empty"),
    ("dtype", 0, "pred.npy", "'torch.float64'"),
    ("no tensor", 0, "pred.npy", "is a ndarray: give a torch.Tensor"),
    ("sparse", 0, "pred.npy", "give a dense one"),
    ("dictionary", -1, "pred.npy", "a .npy file holds one tensor"),
    ("deep", -1, "pred.parquet", "flatten it"),
    ("complex", -1, "pred.parquet", "Parquet has no complex numbers"),
    ("columns", -1, "pred.parquet", "columns has 3 names"),
    ("columns", -1, "pred.npy", "columns has 3 names"),
    ("id", 1, "pred.parquet", "'id' is taken"),
    ("graph", 0, "pred.npy", "graph is a str"),
    ("no ids", -1, "pred.npy", "return_mapping=True"),
    ("float ids", 1, "pred.npy", "give integers"),
    ("few ids", 0, "pred.npy", "one for each own node"),
    ("large ids", 1, "pred.npy", "original ids go from"),
    ("large ids", 0, "pred.npy", "is there twice"),
    ("same ids", 0, "pred.npy", "original id 0 is there twice"),
    ("type", 1, "pred.npy", "node type 'person' is unknown"),
]


@pytest.mark.parametrize(("wrong", "rank", "name", "message"), REFUSED)
def test_refused(two: Workers, tmp_path: Path, wrong: str, rank: int, name: str, message: str) -> None:
    """All ranks raise, nothing is left, and the next call goes well."""
    (tmp_path / "other").mkdir()
    graph = make("random", 2)
    arguments = graph.shares()
    common = {"path": str(tmp_path / name), "wrong": wrong, "rank": rank, "again": str(tmp_path / f"again-{name}")}
    said = two.run(cases_results.refused, arguments, **common)
    firsts = [first for first, _ in said]
    assert all(firsts), firsts
    assert any(message in first for first in firsts), firsts
    assert [second for _, second in said] == ["", ""]
    assert [f for f in left_behind(tmp_path) if not f.startswith("again-")] == []
    assert (tmp_path / f"again-{name}").exists()


def test_what_was_there_stays_after_an_error(two: Workers, tmp_path: Path) -> None:
    expected = write(two, tmp_path / "pred.npy", "random", "float32", [2])
    graph = make("random", 2)
    arguments = graph.shares()
    common = {"path": str(tmp_path / "pred.npy"), "wrong": "same ids", "rank": 0, "again": str(tmp_path / "b.npy")}
    two.run(cases_results.refused, arguments, **common)
    np.testing.assert_array_equal(np.load(tmp_path / "pred.npy"), expected)


def test_blocks_are_refused(two: Workers, tmp_path: Path) -> None:
    graph = make("random", 2)
    for message in two.run(cases_results.of_block, graph.shares(), path=str(tmp_path / "pred.npy")):
        assert "graph is a block" in message


@pytest.mark.parametrize("name", ["pred.npy", "pred.parquet"])
def test_full_disk(two: Workers, small_disk: Path, name: str) -> None:
    graph = make("random", 2)
    results = two.attempt(cases_results.too_large, graph.shares(), path=str(small_disk / name))
    assert all(isinstance(r, Failure) for r in results)
    says = rf"No space left on device: .* are needed, .* are free: '{small_disk}"
    assert any(re.search(says, r.message) for r in results), results
    assert list(small_disk.iterdir()) == []


def test_a_file_where_the_directory_would_be(two: Workers, tmp_path: Path) -> None:
    (tmp_path / "pred.parquet").write_text("mine")
    with pytest.raises(AssertionError, match="pred.parquet is a file"):
        write(two, tmp_path / "pred.parquet", "random", "float32", [])
    assert (tmp_path / "pred.parquet").read_text() == "mine"
    (tmp_path / "b.parquet").mkdir()
    (tmp_path / "b.parquet" / "notes.txt").write_text("mine")
    with pytest.raises(AssertionError, match="holds 'notes.txt'"):
        write(two, tmp_path / "b.parquet", "random", "float32", [])


def test_gather_refuses(few: Workers, two: Workers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if few.world != 2:
        pytest.skip("two workers are enough")
    for name in ("a", "b"):
        write(two, tmp_path / f"{name}.parquet", "random", "float32", [2])
    part = "part-00001-of-00002.parquet"

    def refused(message: str, kind: type[Exception] = FormatError, out: str = "out.parquet") -> None:
        with pytest.raises(kind, match=message):
            gather(str(tmp_path / "a.parquet"), str(tmp_path / out))
        assert not (tmp_path / out).exists() and not list(tmp_path.glob(".*"))

    refused("ends in .npy or .parquet", ValueError, "out.csv")
    good = (tmp_path / "a.parquet" / part).read_bytes()
    os.replace(tmp_path / "b.parquet" / part, tmp_path / "a.parquet" / part)
    refused("was not written together")
    (tmp_path / "a.parquet" / part).write_bytes(good[:-20])
    refused("Parquet magic bytes|magic")
    (tmp_path / "a.parquet" / part).unlink()
    refused(f"holds 1 files of 2: {part} is missing")
    (tmp_path / "a.parquet" / "part-00000-of-00003.parquet").write_bytes(b"")
    refused("is missing|different numbers")
    assert sar.cli.main(["gather", str(tmp_path), "-o", str(tmp_path / "x.parquet")]) == 1
    assert "holds no part-00000-of-N.parquet" in capsys.readouterr().err
