"""sar.load: a graph, or data for PyG, with what the files of the partition hold."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import sar
from sar.partitioning.arrays import partition_arrays
from sar.partitioning.dataset import Dataset
from tests.data import cases_load as cases
from tests.support.sessions import Workers

Arrays = dict[str, np.ndarray]
NODES, EDGES, CLASSES = 40, 170, 5
FORMS = [cases.graph, *([cases.pyg] if importlib.util.find_spec("torch_geometric") else [])]


def _columns(kind: str, rng: np.random.Generator) -> Arrays:
    return {
        f"{kind}/features": rng.standard_normal((NODES, 3)).astype("float32"),
        f"{kind}/labels": rng.permutation(np.arange(NODES) % CLASSES),
        f"{kind}/train_mask": rng.random(NODES) < 0.4,
    }


def homogeneous() -> Arrays:
    rng = np.random.default_rng(5)
    edges = {"_N:_E:_N/edge_index": rng.integers(0, NODES, (2, EDGES)), "_N:_E:_N/w": rng.random(EDGES)}
    return {**_columns("_N", rng), **edges}


def heterogeneous() -> Arrays:
    """Papers have labels, authors do not."""
    rng = np.random.default_rng(6)
    return {
        **_columns("paper", rng),
        "author/age": rng.integers(20, 60, 9),
        "author:writes:paper/edge_index": np.stack([rng.integers(0, 9, EDGES), rng.integers(0, NODES, EDGES)]),
        "author:writes:paper/w": rng.random(EDGES),
        "paper:cites:paper/edge_index": rng.integers(0, NODES, (2, EDGES)),
    }


GRAPHS: dict[str, Callable[[], Arrays]] = {"homogeneous": homogeneous, "heterogeneous": heterogeneous}


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Arrays, int], str]:
    """Writes a graph in parts, and gives the folder."""

    def write(arrays: Arrays, parts: int) -> str:
        folder = str(tmp_path_factory.mktemp("parts"))
        partition_arrays(arrays, parts, folder, "small", "random", 1)
        return folder

    return write


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("which", GRAPHS)
def test_what_the_files_hold(few: Workers, which: str, form: Any, cut: Any, tmp_path: Path) -> None:
    arrays = GRAPHS[which]()
    if which == "homogeneous":  # in DGL's format; the last of several workers has no node
        path = str(tmp_path)
        np.savez(tmp_path / "small.npz", **arrays)
        with Dataset(str(tmp_path / "small.npz")) as dataset:
            owner = np.arange(NODES, dtype=np.int32) % max(1, few.world - 1)
            dataset.write_parts(owner, few.world, path, {"name": "small", "method": "random"})
    else:
        path = cut(arrays, few.world)
    found = few.run(form, path=path)
    for name, column in arrays.items():
        kind, _, key = name.partition("/")
        if ":" in kind:
            there, expected = ("degrees", EDGES) if key == "edge_index" else (key, column.sum())
            assert sum(one["edges"][kind][there] for one in found) == pytest.approx(expected)
            continue
        ids = np.concatenate([one["columns"][f"{kind}/orig_id"] for one in found])
        rows = np.concatenate([one["columns"][name] for one in found])
        assert rows.dtype == column.dtype and np.array_equal(rows, column[ids]), name
        assert sorted(ids) == list(range(len(column)))
    kind = "_N" if which == "homogeneous" else "paper"
    label = f"{kind}/labels" if form is cases.graph else (f"{kind}/y" if kind == "paper" else "y")
    features = label.replace("labels", "features")
    for one in found:
        assert one["num_classes"] == CLASSES
        world = few.world
        masked = float(arrays[f"{kind}/train_mask"].sum())
        assert one["totals"] == [masked, float(arrays[f"{kind}/labels"].sum()), 2.0 * world * (world + 1), world / 2]
        assert one["gradient"] == 3 * world
        for said in ("KeyError: no feature ends with 'trian_mask'; there are: ", label, "did you mean", "train_mask'"):
            assert said in one["unknown"]
        assert form is not cases.graph or features in one["unknown"]


def test_classes(two: Workers, cut: Any) -> None:
    """Labels in a column of classes each, and with a dimension of one; a worker may see few of them, or no node."""
    arrays = homogeneous()
    several = {**arrays, "_N/labels": np.zeros((NODES, 7), "float32")}
    column = {**arrays, "_N/labels": arrays["_N/labels"].reshape(-1, 1)}
    one_labelled = {**arrays, "_N/labels": np.where(np.arange(NODES) == 3, 8, -1)}
    for changed, count in ((several, 7), (column, CLASSES), (one_labelled, 9)):
        assert two.run(cases.classes, path=cut(changed, 2)) == [count, count]
    one_paper = {
        "paper/y": np.array([2]),
        "author:writes:paper/edge_index": np.stack([np.arange(9), np.zeros(9, np.int64)]),
    }
    assert two.run(cases.classes, path=cut(one_paper, 2)) == [3, 3]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_what_is_not_there(two: Workers, form: Any, cut: Any, tmp_path: Path) -> None:
    floats, none, both = homogeneous(), homogeneous(), heterogeneous()
    floats["_N/labels"] = floats["_N/labels"].astype("float32")
    del none["_N/labels"]
    both["author/label"] = np.arange(9) % 2
    paths = [*(cut(arrays, 2) for arrays in (floats, none, both)), cut(both, 3), str(tmp_path)]
    pyg = form is not cases.graph
    there = ["n_id, train_mask, x, y", "n_id, train_mask, x"]
    if not pyg:
        there = [f"_N/features, {label}_N/orig_id, _N/train_mask" for label in ("_N/labels, ", "")]
    begin = "ValueError: sar.load found no labels, which are a column y, labels or label of whole numbers; "
    for *without, of_both, of_three, of_nothing in two.run(cases.why_not, paths=paths, pyg=pyg):
        assert without == [f"{begin}columns of nodes are: {names}" for names in there]
        assert of_both.startswith("ValueError: several node types have labels")
        assert "author 2" in of_both and f"paper {CLASSES}" in of_both
        assert of_three.startswith("ValueError") and "3 partitions, but 2 workers" in of_three
        assert of_nothing == f"FileNotFoundError: the directory {tmp_path} holds no JSON file: give the one that " + (
            "describes the partitions"
        )


def test_graphs_of_older_calls(two: Workers, cut: Any) -> None:
    for total, said in two.run(cases.by_hand, path=cut(homogeneous(), 2)):
        assert total == NODES and "sar.load found no labels" in said and said.endswith("columns of nodes are: _N/ones")


def test_before_there_are_workers(cut: Any) -> None:
    with pytest.raises(RuntimeError, match="initialize_comms"):
        sar.load(cut(homogeneous(), 1))


def test_pyg_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    with pytest.raises(ImportError, match=r"torch_geometric.*pip install 'sar-gnn\[pyg\]'"):
        sar.load("parts", pyg=True)
