"""SAR's partition format: the same parts as DGL's, to the bit, and what is wrong with one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
import torch

import sar
from sar.partitioning.dataset import Dataset
from sar.partitioning.parts import PartsOptions, write_parts
from tests.data import cases_sar_format
from tests.support import graph_dirs
from tests.support.command import exit_code
from tests.support.pool import Failure, Pool

N, E = 120, 900


def one_type(folder: Path, n: int = N, edges: int = E) -> Path:
    """A graph with parallel edges, self loops and isolated nodes, ids that are words, and features of both."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(11)
    src, dst = rng.integers(0, n - 10, edges), rng.integers(5, n, edges)
    src[:20], dst[:20] = src[20:40], dst[20:40]
    src[40:50] = dst[40:50]
    nodes: Dict[str, np.ndarray] = {
        "features": rng.random((n, 6), dtype=np.float32),
        "labels": rng.integers(0, 4, n),
        "train_mask": rng.random(n) < 0.5,
    }
    weights = {"w": rng.random((edges, 1), dtype=np.float32)}
    graph_dirs.write(
        folder, {"_N": (n, nodes)}, {("_N", "_E", "_N"): (src, dst, weights)}, ids={"_N": "nodes/_N/ids.parquet"}
    )
    pq.write_table(pa.table({"id": [f"node {i}" for i in range(n)]}), folder / "nodes/_N/ids.parquet")
    return folder


def several_types(folder: Path) -> Path:
    rng = np.random.default_rng(12)
    relations = {}
    for triple in (("a", "x", "a"), ("a", "y", "b"), ("b", "x", "a")):
        rows = {"a": 50, "b": 23}
        ends = rng.integers(0, rows[triple[0]], 200), rng.integers(0, rows[triple[2]], 200)
        relations[triple] = (*ends, {"w": rng.random(200, dtype=np.float32)})
    graph_dirs.write(folder, {"a": (50, {"features": rng.random((50, 3))}), "b": (23, {})}, relations)
    return folder


def both(graph: Path, out: Path, parts: int, empty: bool = False) -> Tuple[str, str]:
    """The descriptions of the same parts in DGL's format and in SAR's. ``empty``: part 1 has no nodes."""
    with Dataset(str(graph)) as dataset:
        assignment = np.random.default_rng(parts).integers(0, parts, dataset.num_nodes).astype(np.int32)
        assignment[(assignment == 1) & empty] = 0
        for form in ("dgl", "sar"):
            write_parts(dataset, assignment, parts, str(out / form), PartsOptions("g", "drawn", form))
    return str(out / "dgl" / "g.json"), str(out / "sar" / "g.json")


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


@pytest.mark.parametrize(("parts", "empty"), [(1, False), (2, False), (4, True), (8, False)])
def test_training_is_the_same_to_the_bit(tmp_path: Path, pool: Pool, parts: int, empty: bool) -> None:
    files = both(one_type(tmp_path / "g"), tmp_path, parts, empty)
    runs = [pool.run(parts, "shm", cases_sar_format.train, [{}] * parts, json_file=file) for file in files]
    assert len(set(runs[0][0]["losses"])) == 3
    same(*runs)


def test_several_types(tmp_path: Path, pool: Pool) -> None:
    files = both(several_types(tmp_path / "g"), tmp_path, 2)
    same(*(pool.run(2, "shm", cases_sar_format.hetero, [{}] * 2, json_file=file) for file in files))


def test_what_a_part_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    _, own = both(one_type(tmp_path / "g"), tmp_path, 3)
    for part in range(3):
        data = sar.load_dgl_partition_data(own, part)
        ids = pq.read_table(data.stored.node_id_files()["_N"])["id"].to_pylist()
        assert ids == [f"node {i}" for i in data.node_features["_N/orig_id"].tolist()]
        assert data.node_features["_N/train_mask"].dtype == torch.bool
        folder = Path(own).parent / f"part{part}"
        column = np.load(folder / "relations/_N___E___N/col.npy", mmap_mode="r")
        assert column.dtype == np.int32 and len(column) == len(data.edge_features["_N:_E:_N/w"])
    assert exit_code("info", own) == 0
    assert "_N/features" in capsys.readouterr().out
    assert exit_code("info", own, "--verify") == 0
    assert " no " not in capsys.readouterr().out
    assert exit_code("plan", own, "--layers", "sage:8") == 0


def test_convert(tmp_path: Path) -> None:
    """There and back again: what DGL's format holds does not change, also of a graph whose edges have no order."""
    rng = np.random.default_rng(4)
    ends = rng.integers(0, 50, (2, 300))
    np.savez(tmp_path / "loose.npz", edge_index=ends, x=rng.random((50, 2)), w=rng.random(300))
    for graph in (one_type(tmp_path / "g"), several_types(tmp_path / "h"), tmp_path / "loose.npz"):
        out = tmp_path / f"parts-{graph.stem}"
        dgl, own = both(graph, out, 3)
        assert exit_code("convert", own, "--to", "dgl", "--out", out / "a") == 0
        assert exit_code("convert", dgl, "--to", "sar", "--out", out / "b") == 0
        assert exit_code("convert", out / "b", "--to", "dgl", "--out", out / "c") == 0
        for part in range(3):
            read = [
                contents(str(file), part) for file in (dgl, own, out / "a/g.json", out / "b/g.json", out / "c/g.json")
            ]
            for other in read[1:]:
                same(read[0], other)
    assert exit_code("convert", dgl, "--to", "sar", "--out", Path(dgl).parent) == 2


def contents(file: str, part: int) -> Any:
    data = sar.load_dgl_partition_data(file, part)
    features = {**data.node_features, **data.edge_features}
    as_stored = {k: t.to(torch.uint8) if t.dtype == torch.bool else t for k, t in features.items()}
    edges = [[end.numpy() for end in data.stored.edges(n)] for n in range(len(data.edge_type_names))]
    return [sorted(as_stored), [as_stored[name].numpy() for name in sorted(as_stored)], edges, data.node_ranges]


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def construct(pool: Pool, *files: str) -> List[Tuple[str, str]]:
    """Kind and message of what constructing the graph of these descriptions raises on each worker."""
    results = pool.attempt(2, "shm", cases_sar_format.construct, json_files=list(files))
    assert all(isinstance(result, Failure) for result in results), results
    return [(result.kind, result.message) for result in results]


def test_damage(tmp_path: Path, pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    _, own = both(one_type(tmp_path / "g"), tmp_path, 2)
    relation = Path(own).parent / "part1/relations/_N___E___N"
    for name in sorted(os.listdir(relation)):
        path = relation / name
        flip(path, path.stat().st_size - 3)
        assert exit_code("info", own, "--verify") == 1
        assert f"{path} at bytes" in capsys.readouterr().out
        if name not in ("halo_rows.npy", "edge_start.npy"):  # which no graph reads
            failures = construct(pool, own, own)
            assert failures[1][0] == "FormatError" and f"{path} at bytes" in failures[1][1]
            assert failures[0][0] == "RemoteError"
        flip(path, path.stat().st_size - 3)
    (relation / "col.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"col.npy.*named by .*part1/part.json"):
        sar.load_dgl_partition_data(own, 1)


def test_parts_of_other_runs(tmp_path: Path, pool: Pool) -> None:
    """A part belongs to its description, and the parts of all workers to one run."""
    graph = one_type(tmp_path / "g")
    dgl, first = both(graph, tmp_path / "first", 2)
    _, second = both(graph, tmp_path / "second", 2, empty=True)
    assert all("of another partitioning" in text for _, text in construct(pool, first, second))
    assert any(kind == "ScheduleError" for kind, _ in construct(pool, first, dgl))
    shutil.rmtree(Path(first).parent / "part1")
    shutil.copytree(Path(second).parent / "part1", Path(first).parent / "part1")
    with pytest.raises(sar.FormatError, match="these files are of different runs"):
        sar.load_dgl_partition_data(first, 1)
    description = json.loads(Path(second).read_text())
    description["part-0"]["part"] = "../../first/sar/part0/part.json"
    del description["checksum"]
    Path(second).write_text(json.dumps(description))
    with pytest.raises(sar.FormatError, match="inside the directory"):
        sar.load_dgl_partition_data(second, 0)


def test_a_stopped_write_leaves_what_was_there(tmp_path: Path) -> None:
    graph = one_type(tmp_path / "g")
    _, own = both(graph, tmp_path, 2)
    before = contents(own, 1)
    np.save(graph / "edges/_N___E___N/source.npy", np.full(E, N, np.int32))  # no node
    assert (
        exit_code("partition", graph, "--parts", 2, "--out", Path(own).parent, "--name", "g", "--method", "random") == 1
    )
    same(before, contents(own, 1))
    assert not [name for name in os.listdir(Path(own).parent) if "partial" in name]
    shutil.rmtree(graph)
    one_type(graph)
    assert (
        exit_code("partition", graph, "--parts", 2, "--out", Path(own).parent, "--name", "g", "--method", "random") == 0
    )
    assert sorted(os.listdir(Path(own).parent)) == ["g.json", "part0", "part1"]
