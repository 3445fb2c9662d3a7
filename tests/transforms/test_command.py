"""``sar transform``: what it writes, against dense matrices of the whole graph, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sar._engine.abi import part_info
from sar.data.graph_directory import GraphDirectory
from sar.transforms import stored
from tests.support import graph_dirs
from tests.support.command import exit_code
from tests.support.graphs import Graph
from tests.transforms import graphs

ALL = "random-walk-pe=5,laplacian-pe=4,pagerank,degree-profile"
TRIPLE = ("_N", "_E", "_N")


def written(folder: Path, graph: Graph) -> None:
    x = np.random.default_rng(3).random((graph.num_nodes, 2), dtype=np.float32)
    features = {"weight": graphs.weights(graph).astype(np.float32)}
    graph_dirs.write(folder, {"_N": (graph.num_nodes, {"x": x})}, {TRIPLE: (graph.src, graph.dst, features)})


def columns(folder: Path, kind: str = "_N") -> dict[str, np.ndarray]:
    graph = GraphDirectory(folder)
    return {name: np.array(graph.map(array)) for name, array in graph.node_types[kind].features.items()}


def near(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("weight", [None, "weight"])
def test_into_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weight: str | None) -> None:
    monkeypatch.setattr(stored, "_EDGES", 40)  # so that rows are cut, and blocks lie within one row
    graph = graphs.undirected(1).whole
    written(tmp_path / "g", graph)
    before = {path: path.read_bytes() for path in (tmp_path / "g").rglob("*") if path.is_file()}
    given = ["--weight", weight] if weight else []
    assert exit_code("transform", tmp_path / "g", "--add", ALL, "--out", tmp_path / "made", *given) == 0
    assert before == {path: path.read_bytes() for path in (tmp_path / "g").rglob("*") if path.is_file()}
    found = columns(tmp_path / "made")
    matrix = graphs.matrix(graph, graphs.weights(graph).astype(np.float32) if weight else None)
    near(found["random_walk_pe"], graphs.landing(matrix, 5))
    near(found["pagerank"], graphs.pagerank(matrix, 0.85, np.ones(len(matrix))))
    near(found["degree_profile"], graphs.degree_profile(graphs.matrix(graph)))
    values = np.linalg.eigvalsh(graphs.laplacian(matrix))[1:5]
    near((graphs.laplacian(matrix) @ found["laplacian_pe"]).astype(np.float32), found["laplacian_pe"] * values)
    near(found["laplacian_pe"].T @ found["laplacian_pe"], np.eye(4))
    assert exit_code("info", tmp_path / "made", "--verify") == 0
    assert (
        exit_code("partition", tmp_path / "made", "--parts", 2, "--method", "random", "--out", tmp_path / "parts") == 0
    )
    kept = part_info(str(tmp_path / "parts" / "made.json"), 0)["node_features"]
    assert {f"_N/{name}" for name in found} <= {one["name"] for one in kept}


def test_into_a_directed_graph_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = graphs.directed(1).whole
    written(tmp_path / "g", graph)
    added = "random-walk-pe=4,degree-profile,pagerank"
    assert exit_code("transform", tmp_path / "g", "--add", added, "--prefix", "my_") == 0
    assert "wrote my_random_walk_pe, my_degree_profile, my_pagerank into" in capsys.readouterr().out
    found, matrix = columns(tmp_path / "g"), graphs.matrix(graph)
    assert set(found) == {"x", "my_random_walk_pe", "my_degree_profile", "my_pagerank"}
    near(found["my_random_walk_pe"], graphs.landing(matrix, 4))
    near(found["my_degree_profile"], graphs.degree_profile(matrix))
    near(found["my_pagerank"], graphs.pagerank(matrix, 0.85, np.ones(len(matrix))))
    assert exit_code("info", tmp_path / "g", "--verify") == 0
    assert exit_code("transform", tmp_path / "g", "--add", "pagerank") == 0  # a second time, with checksums there


def test_of_several_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(6)
    cites = (rng.integers(0, 20, 70), rng.integers(0, 20, 70), {})
    relations = {("author", "writes", "paper"): (rng.integers(0, 9, 30), rng.integers(0, 20, 30), {})}
    graph_dirs.write(
        tmp_path / "g", {"author": (9, {}), "paper": (20, {})}, {**relations, ("paper", "cites", "paper"): cites}
    )
    assert exit_code("transform", tmp_path / "g", "--add", "pagerank") == 1
    assert "there are several edge types: give one of author:writes:paper, paper:cites:paper" in capsys.readouterr().err
    assert exit_code("transform", tmp_path / "g", "--add", "pagerank", "--edges", "writes") == 1
    assert "lead from one node type to another" in capsys.readouterr().err
    assert exit_code("transform", tmp_path / "g", "--add", "pagerank", "--edges", "cites") == 0
    matrix = graphs.matrix(Graph(20, cites[0], cites[1], np.array([0, 20])))
    near(columns(tmp_path / "g", "paper")["pagerank"], graphs.pagerank(matrix, 0.85, np.ones(20)))


WRONG = {
    "fame": (2, "there is no column 'fame' to add: give some of random-walk-pe=N"),
    "pagerank=3": (2, "'pagerank=3': write pagerank"),
    "laplacian-pe": (2, "'laplacian-pe': write laplacian-pe=N, N eigenvectors"),
    "random-walk-pe=-1": (2, "'random-walk-pe=-1': write random-walk-pe=N, N steps"),
    "pagerank,pagerank": (2, "pagerank: given twice"),
    "laplacian-pe=61": (1, "61 eigenvectors of a graph of 61 nodes"),
    "laplacian-pe=2": (1, "make it undirected before it is partitioned (sar ingest --symmetrize"),
    "pagerank --prefix x --memory 1MiB": (1, "of memory at least: give more with --memory"),
    "pagerank --weight w": (1, "have no feature 'w'; there are: weight"),
    "pagerank --edges _M": (1, "there is no edge type '_M'"),
}


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written then."""
    folder = tmp_path / "g"
    written(folder, graphs.directed(1).whole)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for words, (code, text) in WRONG.items():
        assert exit_code("transform", folder, "--add", *words.split()) == code, words
        assert text in capsys.readouterr().err
    content = json.loads((folder / "graph.json").read_text())
    content["node_types"]["_N"]["features"]["pagerank"] = content["node_types"]["_N"]["features"]["x"]
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "graph.json").write_text(json.dumps(content))
    assert exit_code("transform", folder, "--add", "pagerank") == 1
    assert "nodes have pagerank already: give --prefix" in capsys.readouterr().err
    assert exit_code("transform", tmp_path / "none", "--add", "pagerank") == 1
    assert "expected the directory of a graph" in capsys.readouterr().err
