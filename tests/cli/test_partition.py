"""``sar partition``: its methods, balance, hosts, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sar.cli.output import stage
from sar.partitioning import methods
from sar.partitioning.dataset import Dataset
from sar.partitioning.options import Options
from tests.support import graph_dirs
from tests.support.communities import HOMOGENEOUS, NODES, community_edges, cut, parts_of, sar


@pytest.mark.parametrize("method", ["kaminpar", "metis", "fennel", "random", "contiguous"])
def test_methods(graph: Path, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On a graph directory: few cut edges where that is promised, parts in balance, the report's figures true."""
    out, report = tmp_path / "parts", tmp_path / "report.json"
    assert sar("partition", graph, "-n", 6, "--out", out, "--method", method, "--report", report) == 0
    found = parts_of(out, 6)
    if method in ("kaminpar", "metis", "fennel"):
        assert cut(found) < 0.5 * 5 / 6  # half of what random parts have
    content = json.loads(report.read_text())
    src, dst = community_edges()
    sizes = np.bincount(found, minlength=6)
    assert content["nodes"] == sizes.tolist() and content["edges"] == np.bincount(found[dst], minlength=6).tolist()
    assert content["edge_cut"] == int((found[src] != found[dst]).sum())
    between = np.zeros((6, 6), int)
    np.add.at(between, (found[dst], found[src]), 1)
    assert content["between"] == between.tolist() and content["method"] == method
    assert len(content["plan"]["workers"]) == 6 and content["plan"]["workers"][0]["peak"] > 0
    if method != "contiguous":
        assert sizes.max() <= 1.03 * NODES / 6 + 1
    shown = capsys.readouterr().out
    assert f"{method}: edge cut {content['edge_cut']:,} of {len(src):,} edges" in shown and "peak memory" in shown


@pytest.mark.parametrize("method", ["kaminpar", "metis", "fennel"])
def test_the_same_seed_gives_the_same_parts(graph: Path, method: str) -> None:
    with Dataset(str(graph)) as dataset:
        found = [methods.assign(dataset, method, Options(5, seed=s, scratch=str(graph)), stage) for s in (3, 3, 4)]
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


def test_directed_graphs_are_cut_by_edges_of_both_directions(tmp_path: Path) -> None:
    """Where only one direction of each edge is there, or the graph is an .npz file, the parts are those of the graph
    with both."""
    src, dst = community_edges()
    one_way = src < dst
    relation = {HOMOGENEOUS: (src[one_way], dst[one_way], {})}
    graph_dirs.write(tmp_path / "one", {"_N": (NODES, {})}, relation)
    graph_dirs.write(tmp_path / "both", {"_N": (NODES, {})}, {HOMOGENEOUS: (src, dst, {})})
    np.savez(tmp_path / "file.npz", edge_index=np.stack([dst[one_way], src[one_way]]), num_nodes=NODES)
    found = []
    for name in ("both", "one", "file.npz"):
        with Dataset(str(tmp_path / name)) as dataset:
            found.append(methods.assign(dataset, "fennel", Options(4, scratch=str(tmp_path)), stage))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("method", ["kaminpar", "metis", "fennel"])
def test_several_types(tmp_path: Path, method: str) -> None:
    """Authors are near their papers, whatever the direction of the edges."""
    rng = np.random.default_rng(2)
    group = np.arange(600) % 3
    author, paper = np.arange(3000) % 600, rng.integers(0, 100, 3000) * 3 + np.arange(3000) % 3
    relation = {("author", "writes", "paper"): (author, paper, {})}
    graph_dirs.write(tmp_path / "typed", {"paper": (300, {}), "author": (600, {})}, relation)
    with Dataset(str(tmp_path / "typed")) as dataset:
        found = methods.assign(dataset, method, Options(3, scratch=str(tmp_path)), stage)
    assert (found[300 + author] == found[paper]).mean() > 0.95
    assert np.bincount(found[300:], minlength=3).min() > 150 and len(group) == 600


@pytest.mark.parametrize("method", ["kaminpar", "metis", "fennel"])
@pytest.mark.parametrize("balance", [("edges",), ("nodes", "train")])
def test_balance(graph: Path, method: str, balance: tuple[str, ...]) -> None:
    options = Options(4, balance=balance, imbalance=0.05, scratch=str(graph))
    with Dataset(str(graph)) as dataset:
        found = methods.assign(dataset, method, options, stage)
    _, dst = community_edges()
    train = np.load(graph / "nodes" / "_N" / "train_mask.npy")

    def worst(parts: np.ndarray, weight: np.ndarray) -> float:
        sums = np.bincount(parts, weight, 4)
        return float(sums.max() / sums.mean())

    assert cut(found) < 0.8 * 3 / 4
    nodes = np.ones(NODES)
    if balance == ("edges",):
        assert worst(found, np.bincount(dst, minlength=NODES)) < 1.07
    elif method == "fennel":  # each of them is bounded
        assert worst(found, nodes) < 1.07 and worst(found, train) < 1.07
    else:  # their sum
        assert worst(found, nodes + train / train.mean()) < 1.07


@pytest.mark.parametrize("method", ["kaminpar", "metis", "fennel"])
def test_hosts(graph: Path, tmp_path: Path, method: str) -> None:
    report = tmp_path / "report.json"
    words = ["partition", graph, "-n", 6, "--hosts", 2, "--out", tmp_path / "parts", "--method", method]
    assert sar(*words, "--report", report) == 0
    found = parts_of(tmp_path / "parts", 6)
    src, dst = community_edges()
    between = float((found[src] // 3 != found[dst] // 3).mean())
    assert abs(json.loads(report.read_text())["cut_between_hosts"] - between) < 1e-12
    assert between < 0.45 * cut(found)  # with parts on hosts by chance, 3/5 of the cut is between them
    assert np.bincount(found, minlength=6).max() <= 1.03 * NODES / 6 + 2


def test_parts_of_isolated_nodes(tmp_path: Path) -> None:
    none = np.empty(0, np.int64)
    graph_dirs.write(tmp_path / "alone", {"_N": (50, {})}, {HOMOGENEOUS: (none, none, {})})
    for method in methods.METHODS:
        with Dataset(str(tmp_path / "alone")) as dataset:
            found = methods.assign(dataset, method, Options(7, scratch=str(tmp_path)), stage)
        assert np.bincount(found, minlength=7).max() <= 8 and np.bincount(found, minlength=7).min() > 0


def test_the_default_method(monkeypatch: pytest.MonkeyPatch) -> None:
    assert methods.default_method(1000, 10_000, 1 << 30) == ("kaminpar", None)
    method, note = methods.default_method(1_000_000, 1_000_000_000, 8 << 30)
    assert method == "fennel" and note is not None and "MiB of memory" in note
    monkeypatch.setattr(methods, "installed", lambda method: method != "kaminpar")
    assert methods.default_method(1000, 10_000, 1 << 30) == ("metis", None)
    method, note = methods.default_method(1_000_000, 1_000_000_000, 8 << 30)
    assert method == "fennel" and note is not None and "pip install 'sar-gnn[partition]" in note


@pytest.mark.parametrize("form", ["sar", "dgl"])
def test_features_are_rounded(graph: Path, tmp_path: Path, form: str) -> None:
    """To nearest even, as torch does, those of several dimensions alone, and in half the bytes, mapped or read."""
    import torch

    import sar as package

    x = torch.from_numpy(np.random.default_rng(1).random((NODES, 4), dtype=np.float32))  # what the graph has
    out, words = tmp_path / "parts", ("--method", "random", "--format", form, "--features-dtype", "bfloat16")
    assert sar("partition", graph, "-n", 2, "--out", out, *words) == 0
    seen = 0
    for part, how in enumerate(("memory", "mapped")):
        package.Config.features = how
        try:
            data = package.load_dgl_partition_data(out, part, torch.device("cpu"))
        finally:
            package.Config.features = "memory"
        found = {name: package.suffix_key_lookup(data.node_features, name) for name in ("features", "orig_id")}
        assert found["features"].dtype == torch.bfloat16
        assert torch.equal(found["features"], x[found["orig_id"]].bfloat16())
        assert package.suffix_key_lookup(data.node_features, "train_mask").dtype == torch.uint8
        seen += len(found["features"])
    assert seen == NODES
