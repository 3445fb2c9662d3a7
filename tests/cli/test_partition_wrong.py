"""``sar partition``: wrong usage, damaged graphs, and what is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sar.cli.output import stage
from sar.partitioning import methods
from sar.partitioning.dataset import Dataset
from sar.partitioning.options import Options, PartitioningError
from tests.support import graph_dirs
from tests.support.command import exit_code
from tests.support.communities import HOMOGENEOUS, NODES, community_edges


def test_wrong_usage(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["partition", graph, "--out", tmp_path / "parts"]
    for more, code, text in [
        (["-n", 6, "--hosts", 4], 2, "--parts 6 cannot be spread evenly over --hosts 4"),
        (["-n", 2, "--balance", "nodes,nodes"], 2, "each at most once"),
        (["-n", 2, "--balance", "weight"], 2, "not a list of nodes, edges, train"),
        (["-n", 2, "--memory", "much"], 2, "a size such as 4GiB"),
        (["-n", 2, "--imbalance", "-1"], 2, "not between 0 and 1"),
        (["-n", 2, "--method", "metis", "--assignment", "x.npy"], 2, "not allowed with"),
        (["-n", 2, "--objective", "volume", "--method", "kaminpar"], 2, "kaminpar counts edges between parts alone"),
        (["-n", 2, "--objective", "cut", "--method", "random"], 2, "choose --method mtkahypar or kaminpar or metis"),
        (["-n", 2, "--objective", "cut", "--assignment", "x.npy"], 2, "are cut already"),
        (["-n", 2, "--layers", "sage:4,nonsense"], 1, "nonsense"),
        (["-n", 2, "--report", tmp_path / "nowhere" / "r.json"], 1, "there is no directory for"),
        (["-n", 2, "--method", "kaminpar", "--memory", "1MiB"], 1, "1 MiB there are: give more with --memory"),
    ]:
        assert exit_code(*words, *more) == code
        assert text in capsys.readouterr().err
        assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize(
    ("method", "memory", "step"),
    [
        ("mtkahypar", 70 << 20, "--method mtkahypar takes about 2,364 MiB of memory"),
        ("kaminpar", 70 << 20, "--method kaminpar takes about 645 MiB of memory"),
        ("metis", 70 << 20, "--method metis takes about 1,500 MiB of memory"),
        ("fennel", 70 << 20, "--method fennel takes about 76 MiB of memory"),
        ("fennel:volume", 77 << 20, "--method fennel takes about 84 MiB of memory"),
        ("random", 70 << 20, "writing 4 parts takes about 75 MiB of memory"),
    ],
)
def test_too_little_memory(tmp_path: Path, method: str, memory: int, step: str) -> None:
    """What a step takes is known before anything is done, and said with what to do about it."""

    class Million(Dataset):  # nodes, without their files
        def __init__(self) -> None:
            self.num_nodes, self.num_edges = 1 << 20, 13 << 20

        def least_memory(self, parts: int, format: str) -> int:
            return 75 << 20 if format == "sar" else 0

    method, _, objective = method.partition(":")
    with pytest.raises(PartitioningError) as caught:
        methods.check_memory(Million(), method, "sar", Options(4, objective=objective or None, memory=memory))
    text = str(caught.value)
    assert text.startswith(step) and "1,048,576 nodes and 13,631,488 edges, more than the " in text
    assert f"than the {memory >> 20} MiB there are: give more with --memory" in text
    assert ("choose --method fennel" in text) == (method in ("mtkahypar", "kaminpar", "metis"))
    methods.check_memory(Million(), method, "sar", Options(4, memory=3 << 30))


def test_no_train_mask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    src, dst = community_edges()
    graph_dirs.write(tmp_path / "plain", {"_N": (NODES, {})}, {HOMOGENEOUS: (src, dst, {})})
    words = ["partition", tmp_path / "plain", "-n", 2, "--out", tmp_path / "parts", "--balance", "train"]
    assert exit_code(*words, "--method", "fennel") == 1
    assert 'no node feature "train_mask"' in capsys.readouterr().err


def test_in_edges_that_are_not_sorted(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = graph / "edges" / "_N___E___N" / "source.npy"
    source = np.load(path)
    source[[0, 1]] = source[[1, 0]]
    np.save(path, source)
    assert exit_code("partition", graph, "-n", 2, "--out", tmp_path / "parts", "--method", "fennel") == 1
    error = capsys.readouterr().err
    assert "the neighbours of node 0 are not in ascending order" in error and str(graph) in error


@pytest.mark.parametrize("method", ["mtkahypar", "kaminpar"])
def test_a_failing_partitioner(graph: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(method)
    source = "import os, sys; print('something is wrong'); os.kill(os.getpid(), {}) if {} else sys.exit(3)"
    for number, text in ((9, "was killed by signal 9, perhaps for want of memory"), (0, "ended with 3")):
        monkeypatch.setattr(Path, "read_text", lambda *_, n=number, **__: source.format(n, n))
        with Dataset(str(graph)) as dataset, pytest.raises(PartitioningError, match=text) as caught:
            methods.assign(dataset, method, Options(3, memory=1 << 30, scratch=str(graph)), stage)
        assert "--method fennel" in str(caught.value) and (number or "something is wrong" in str(caught.value))


def test_picture(graph: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["partition", graph, "-n", 8, "--hosts", 2, "--out", tmp_path / "parts", "--method", "random"]
    assert exit_code(*words, "--picture", tmp_path / "pairs.png") == 0
    assert (tmp_path / "pairs.png").read_bytes().startswith(b"\x89PNG")


def test_picture_without_matplotlib(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["partition", graph, "-n", 2, "--out", tmp_path / "parts", "--method", "random"]
    assert exit_code(*words, "--picture", tmp_path / "pairs.png") == 1
    assert "--picture needs matplotlib" in capsys.readouterr().err and not (tmp_path / "parts").exists()
