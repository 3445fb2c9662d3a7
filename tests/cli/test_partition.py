"""``sar partition``: its methods, balance, hosts, assignments of others, the report, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sar import cli
from sar.cli.output import stage
from sar.partitioning import kaminpar as kaminpar_module, methods
from sar.partitioning.dataset import Dataset
from sar.partitioning.options import Options, PartitioningError
from tests.support import graph_dirs

DEADLINE = 120.0
NODES, COMMUNITIES = 1200, 12
HOMOGENEOUS = ("_N", "_E", "_N")


def sar(*words: object) -> int:
    """The exit code of a command that starts nothing."""
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)


def community_edges(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Edges in both directions, without repetitions: 7 in 10 stay in a community, 2 more among the communities with
    even, or with odd, numbers."""
    rng = np.random.default_rng(seed)
    u = rng.integers(0, NODES, 10 * NODES)
    near = rng.integers(0, NODES // COMMUNITIES, len(u)) * COMMUNITIES + u % COMMUNITIES
    alike = rng.integers(0, NODES // 2, len(u)) * 2 + u % 2
    kind = rng.random(len(u))
    v = np.where(kind < 0.7, near, np.where(kind < 0.9, alike, rng.integers(0, NODES, len(u))))
    key = np.unique(np.concatenate([u * NODES + v, v * NODES + u]))
    return key // NODES, key % NODES


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph directory of communities; the nodes of some of them are trained on."""
    rng = np.random.default_rng(1)
    x = rng.random((NODES, 4), dtype=np.float32)
    train = ((np.arange(NODES) % COMMUNITIES < 4) & (rng.random(NODES) < 0.6)).astype(np.uint8)
    src, dst = community_edges()
    nodes = {"_N": (NODES, {"features": x, "train_mask": train})}
    graph_dirs.write(tmp_path / "graph", nodes, {HOMOGENEOUS: (src, dst, {})})
    return tmp_path / "graph"


def parts_of(out: Path, parts: int) -> np.ndarray:
    """The part of each node, read out of the written partition."""
    import torch

    import sar as package

    found = np.full(NODES, -1)
    for part in range(parts):
        data = package.load_dgl_partition_data(out, part, torch.device("cpu"))
        found[package.suffix_key_lookup(data.node_features, "orig_id").numpy()] = part
    assert (found >= 0).all()
    return found


def cut(parts: np.ndarray) -> float:
    src, dst = community_edges()
    return float((parts[src] != parts[dst]).mean())


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


# ---- assignments of others ----------------------------------------------------


def test_assignment_from_npy(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = np.random.default_rng(5).integers(0, 3, NODES)
    np.save(tmp_path / "mine.npy", parts)
    words = ["partition", graph, "-n", 3, "--out", tmp_path / "parts", "--assignment"]
    assert sar(*words, tmp_path / "mine.npy") == 0
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
        assert sar(*words, tmp_path / name) == 1
        assert text in capsys.readouterr().err


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A graph directory whose users call their nodes "n0", "n7", … in no order."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    src, dst = community_edges()
    ids = {"_N": "nodes/_N/ids.parquet"}
    graph_dirs.write(tmp_path / "named", {"_N": (NODES, {})}, {HOMOGENEOUS: (src, dst, {})}, ids)
    (tmp_path / "named" / "nodes" / "_N").mkdir(parents=True, exist_ok=True)
    names = pyarrow.table({"id": [f"n{7 * v % NODES}" for v in range(NODES)]})
    parquet.write_table(names, tmp_path / "named" / "nodes" / "_N" / "ids.parquet")
    return tmp_path / "named"


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
    assert sar(*words, write("good.parquet", {"part": parts, "id": ids, "x": parts})) == 0
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
        assert sar(*words, write(f"{name}.parquet", table)) == 1
        assert text in capsys.readouterr().err, name
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and nothing more")
    assert sar(*words, tmp_path / "damaged.parquet") == 1
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
        found = read_assignment(str(tmp_path / "mine.parquet"), str(tmp_path / "typed"), dataset, options)
        np.testing.assert_array_equal(found, parts)
        table["type"] = ["c", *types[1:]]
        parquet.write_table(pyarrow.table(table), tmp_path / "other.parquet")
        with pytest.raises(ValueError, match="no part for id 0 of node type b"):
            read_assignment(str(tmp_path / "other.parquet"), str(tmp_path / "typed"), dataset, options)


# ---- what goes wrong ----------------------------------------------------------


def test_wrong_usage(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["partition", graph, "--out", tmp_path / "parts"]
    for more, code, text in [
        (["-n", 6, "--hosts", 4], 2, "--parts 6 cannot be spread evenly over --hosts 4"),
        (["-n", 2, "--balance", "nodes,nodes"], 2, "each at most once"),
        (["-n", 2, "--balance", "weight"], 2, "not a list of nodes, edges, train"),
        (["-n", 2, "--memory", "much"], 2, "a size such as 4GiB"),
        (["-n", 2, "--imbalance", "-1"], 2, "not between 0 and 1"),
        (["-n", 2, "--method", "metis", "--assignment", "x.npy"], 2, "not allowed with"),
        (["-n", 2, "--layers", "sage:4,nonsense"], 1, "nonsense"),
        (["-n", 2, "--report", tmp_path / "nowhere" / "r.json"], 1, "there is no directory for"),
        (["-n", 2, "--method", "kaminpar", "--memory", "1MiB"], 1, "choose --method fennel"),
    ]:
        assert sar(*words, *more) == code
        assert text in capsys.readouterr().err
        assert not (tmp_path / "parts").exists()


def test_no_train_mask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    src, dst = community_edges()
    graph_dirs.write(tmp_path / "plain", {"_N": (NODES, {})}, {HOMOGENEOUS: (src, dst, {})})
    words = ["partition", tmp_path / "plain", "-n", 2, "--out", tmp_path / "parts", "--balance", "train"]
    assert sar(*words, "--method", "fennel") == 1
    assert 'no node feature "train_mask"' in capsys.readouterr().err


def test_in_edges_that_are_not_sorted(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = graph / "edges" / "_N___E___N" / "source.npy"
    source = np.load(path)
    source[[0, 1]] = source[[1, 0]]
    np.save(path, source)
    assert sar("partition", graph, "-n", 2, "--out", tmp_path / "parts", "--method", "fennel") == 1
    error = capsys.readouterr().err
    assert "the neighbours of node 0 are not in ascending order" in error and str(graph) in error


def test_a_failing_kaminpar(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import os, sys; print('something is wrong'); os.kill(os.getpid(), {}) if {} else sys.exit(3)"
    for number, text in ((9, "was killed by signal 9, perhaps for want of memory"), (0, "ended with 3")):
        monkeypatch.setattr(Path, "read_text", lambda *_, n=number, **__: source.format(n, n))
        with Dataset(str(graph)) as dataset, pytest.raises(PartitioningError, match=text) as caught:
            methods.assign(dataset, "kaminpar", Options(3, memory=1 << 30, scratch=str(graph)), stage)
        assert "--method fennel" in str(caught.value) and (number or "something is wrong" in str(caught.value))


def test_the_default_method(monkeypatch: pytest.MonkeyPatch) -> None:
    assert methods.default_method(1000, 10_000, 1 << 30) == ("kaminpar", None)
    method, note = methods.default_method(1_000_000, 1_000_000_000, 8 << 30)
    assert method == "fennel" and note is not None and "MiB of memory" in note
    monkeypatch.setattr(kaminpar_module, "installed", lambda: False)
    assert methods.default_method(1000, 10_000, 1 << 30) == ("metis", None)
    method, note = methods.default_method(1_000_000, 1_000_000_000, 8 << 30)
    assert method == "fennel" and note is not None and "pip install 'kaminpar" in note


# ---- pictures and interruptions -----------------------------------------------


def test_picture(graph: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["partition", graph, "-n", 8, "--hosts", 2, "--out", tmp_path / "parts", "--method", "random"]
    assert sar(*words, "--picture", tmp_path / "pairs.png") == 0
    assert (tmp_path / "pairs.png").read_bytes().startswith(b"\x89PNG")


def test_picture_without_matplotlib(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["partition", graph, "-n", 2, "--out", tmp_path / "parts", "--method", "random"]
    assert sar(*words, "--picture", tmp_path / "pairs.png") == 1
    assert "--picture needs matplotlib" in capsys.readouterr().err and not (tmp_path / "parts").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("where", ["fennel", "kaminpar", "write"])
def test_interrupted(graph: Path, tmp_path: Path, number: signal.Signals, where: str) -> None:
    """A command that ends early leaves no description and no child; run again, it succeeds."""
    words = ["partition", graph, "-n", 3, "--out", tmp_path / "parts", "--method", "fennel"]
    if where == "kaminpar":
        words[-1] = "kaminpar"
    command = [sys.executable, "-c", STOPS, where, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())  # it is in the middle now
        process.send_signal(number)
        _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode != 0
    if number == signal.SIGINT:
        assert process.returncode == 130 and "interrupted" in errors and "Traceback" not in errors
    if child:
        deadline = time.monotonic() + DEADLINE
        while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not os.path.exists(f"/proc/{child}")
    assert not (tmp_path / "parts" / "graph.json").exists()
    if number == signal.SIGINT:
        assert not (tmp_path / "parts").exists() or not list((tmp_path / "parts").iterdir())
    assert sar(*words) == 0
    parts_of(tmp_path / "parts", 3)


# Stays where it is told to, and says so.
STOPS = """
import sys, time
from sar import cli
from sar.cli.output import Stage

where, words = sys.argv[1], sys.argv[2:]
at = {"fennel": "assigning", "kaminpar": "nothing", "write": "writing"}[where]

def progress(self, done, total):
    if self.what.startswith(at):
        print(0, flush=True)
        while True:
            time.sleep(0.01)

CHILD = '''
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(1, 9)
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.05)
'''
Stage.progress = progress
if where == "kaminpar":
    from sar.partitioning import kaminpar
    kaminpar.Path.read_text = lambda *_, **__: CHILD
    def resident(pid):
        print(pid, flush=True)
        kaminpar._resident = lambda pid: 0
        return 0
    kaminpar._resident = resident
sys.exit(cli.main(words))
"""
