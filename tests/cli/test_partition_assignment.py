"""``sar partition --assignment``: parts that another partitioner made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sar.partitioning.dataset import Dataset
from sar.partitioning.options import Options
from tests.support import graph_dirs
from tests.support.command import exit_code
from tests.support.communities import NODES, parts_of


def test_assignment_from_npy(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = np.random.default_rng(5).integers(0, 3, NODES)
    np.save(tmp_path / "mine.npy", parts)
    words = ["partition", graph, "-n", 3, "--out", tmp_path / "parts", "--assignment"]
    assert exit_code(*words, tmp_path / "mine.npy") == 0
    np.testing.assert_array_equal(parts_of(tmp_path / "parts", 3), parts)
    parts[17] = 3
    np.save(tmp_path / "high.npy", parts)
    np.save(tmp_path / "short.npy", parts[:-1])
    np.save(tmp_path / "real.npy", parts / 2)
    (tmp_path / "damaged.npy").write_bytes(b"\x93NUMPY\x01")
    os.mkfifo(tmp_path / "pipe.npy")
    capsys.readouterr()
    for name, text in {
        "high.npy": "node 17 has part 3, and there are the parts 0 to 2",
        "short.npy": f"int64 of shape [{NODES - 1}]: a part for each of the graph's {NODES} nodes is needed",
        "real.npy": "float64",
        "damaged.npy": "cannot be read as an .npy file",
        "pipe.npy": "a named pipe",
        "none.npy": "none.npy",
        "other.txt": "other.txt",
    }.items():
        assert exit_code(*words, tmp_path / name) == 1
        assert text in capsys.readouterr().err


def test_assignment_from_parquet(named: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(6)
    of_name = {f"n{v}": int(rng.integers(0, 4)) for v in range(NODES)}

    def write(name: str, table: dict[str, Any]) -> Path:
        parquet.write_table(pyarrow.table(table), tmp_path / name)
        return tmp_path / name

    words = ["partition", named, "-n", 4, "--out", tmp_path / "parts", "--assignment"]
    order = list(of_name)
    rng.shuffle(order)
    ids, parts = list(order), [of_name[i] for i in order]
    assert exit_code(*words, write("good.parquet", {"part": parts, "id": ids, "x": parts})) == 0
    expected = [of_name[f"n{7 * v % NODES}"] for v in range(NODES)]
    np.testing.assert_array_equal(parts_of(tmp_path / "parts", 4), expected)
    capsys.readouterr()
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "high": ({"id": ids, "part": [4, *parts[1:]]}, f"id '{ids[0]}' has part 4, and there are the parts 0 to 3"),
        "null": ({"id": ids, "part": [None, *parts[1:]]}, f"id '{ids[0]}' has part None"),
        "lack": ({"id": ids[1:], "part": parts[1:]}, f"no part for id '{ids[0]}'; 1 of {NODES} nodes have none"),
        "twice": ({"id": [*ids, ids[5]], "part": [*parts, 1]}, f"names id '{ids[5]}' more than once; 1 rows"),
        "unknown": ({"id": [*ids, "nobody"], "part": [*parts, 1]}, "id 'nobody' is none of the graph's"),
        "columns": ({"ids": ids, "part": parts}, "id, part are needed"),
        "text": ({"id": ids, "part": [str(p) for p in parts]}, "part an integer"),
    }
    for name, (table, text) in bad.items():
        assert exit_code(*words, write(f"{name}.parquet", table)) == 1
        assert text in capsys.readouterr().err, name
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and nothing more")
    assert exit_code(*words, tmp_path / "damaged.parquet") == 1
    assert "damaged.parquet cannot be read" in capsys.readouterr().err


def test_assignment_of_several_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(7)
    relation = {("a", "to", "b"): (rng.integers(0, 20, 60), rng.integers(0, 30, 60), {})}
    graph_dirs.write(tmp_path / "typed", {"b": (30, {}), "a": (20, {})}, relation)
    parts = rng.integers(0, 2, 50)
    types = ["b"] * 30 + ["a"] * 20
    table = {"type": types, "id": [*range(30), *range(20)], "part": parts}
    parquet.write_table(pyarrow.table(table), tmp_path / "mine.parquet")
    with Dataset(str(tmp_path / "typed")) as dataset:
        from sar.partitioning.assignment import read_assignment

        options = Options(2, scratch=str(tmp_path))
        found = read_assignment(str(tmp_path / "mine.parquet"), dataset, options)
        np.testing.assert_array_equal(found, parts)
        table["type"] = ["c", *types[1:]]
        parquet.write_table(pyarrow.table(table), tmp_path / "other.parquet")
        with pytest.raises(ValueError, match="no part for id 0 of node type b"):
            read_assignment(str(tmp_path / "other.parquet"), dataset, options)
