"""``sar partition`` of graph directories: the same parts as of the ``.npz`` file that holds the same graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from tests.support import graph_dirs
from tests.support.command import exit_code


def files(folder: Path) -> Dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("extra", [["--self-loops"], ["--method", "random"]])
def test_one_type(tmp_path: Path, extra: List[str]) -> None:
    rng = np.random.default_rng(5)
    x, y = rng.random((40, 3), dtype=np.float32), rng.integers(0, 4, 40)
    weights = {} if extra == ["--self-loops"] else {"w": rng.random(200, dtype=np.float32)}
    triple = ("_N", "_E", "_N")
    edges = graph_dirs.write(
        tmp_path / "g",
        {"_N": (40, {"features": x, "labels": y})},
        {triple: (rng.integers(0, 40, 200), rng.integers(0, 35, 200), weights)},
    )
    src, dst, weights = edges[triple]  # type: ignore[assignment]
    np.savez(tmp_path / "g.npz", edge_index=np.stack([src, dst]), x=x, y=y, **weights)
    for name in ("g/", "g.npz"):
        out = tmp_path / f"of_{name.rstrip('/')}"
        graph = f"{tmp_path}/{name}"
        words = ["partition", graph, "--parts", 3, "--out", out, "--format", "dgl", *extra]
        assert exit_code(*words) == 0
    assert files(tmp_path / "of_g") == files(tmp_path / "of_g.npz")


def test_several_types(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    x = rng.random((20, 2), dtype=np.float32)
    writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
    edges = graph_dirs.write(
        tmp_path / "g",
        {"author": (10, {}), "paper": (20, {"features": x})},
        {
            writes: (rng.integers(0, 10, 50), rng.integers(0, 20, 50), {"since": rng.integers(0, 9, 50)}),
            cites: (rng.integers(0, 20, 70), rng.integers(0, 20, 70), {}),
        },
    )
    arrays: Dict[str, Any] = {"author/num_nodes": 10, "paper/x": x}
    for triple, (src, dst, features) in edges.items():
        arrays[":".join(triple) + "/edge_index"] = np.stack([src, dst])
        arrays.update({f"{':'.join(triple)}/{name}": array for name, array in features.items()})
    np.savez(tmp_path / "g.npz", **arrays)
    for name in ("g", "g.npz"):
        out = tmp_path / f"of_{name}"
        assert exit_code("partition", tmp_path / name, "--parts", 2, "--out", out, "--format", "dgl") == 0
    assert files(tmp_path / "of_g") == files(tmp_path / "of_g.npz")


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert exit_code("partition", tmp_path / "empty", "--parts", 2, "--out", tmp_path / "out") == 1
    assert "a directory without one; sar ingest makes one" in capsys.readouterr().err
    assert exit_code("partition", tmp_path / "nothing", "--parts", 2, "--out", tmp_path / "out") == 1
    assert "there is no file or directory" in capsys.readouterr().err
