"""Files that are damaged, are no files, or lie elsewhere: what checksums notice, and what is never opened."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, Callable

import pytest
import torch

import sar
from sar.distributed.network import free_port
from tests.support.command import exit_code
from tests.support.partitions import PARTS, partition

FILES = ["graph.dgl", "node_feat.dgl", "edge_feat.dgl"]


@pytest.fixture
def json_file(tmp_path: Path) -> Path:
    return partition(tmp_path, checksums=True)


def load(json_file: Path, part: int = 0) -> Any:
    data = sar.load_dgl_partition_data(str(json_file), part, torch.device("cpu"))
    return data.all_shard_edges, data.edge_features, data.node_features


def flip(path: Path, at: int, bit: int = 2) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def in_time(do: Callable[[], object]) -> object:
    """What ``do`` raises or returns: within a minute, where it could wait forever."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(do())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert outcome, "it waits"
    return outcome[0]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit(json_file: Path, name: str) -> None:
    path = json_file.parent / "part0" / name
    size = path.stat().st_size
    for at in (0, 9, size // 3, size // 2, size - 1):
        flip(path, at)
        with pytest.raises(sar.FormatError, match="at bytes .* as written") as caught:
            load(json_file)
        assert caught.value.file == str(path) and 0 <= caught.value.offset <= at
        flip(path, at)
    load(json_file)


def test_a_flipped_bit_in_the_edges_of_a_graph(tmp_path: Path) -> None:
    """Construction opens the files again."""
    single = partition(tmp_path, 1, checksums=True)
    data = sar.load_dgl_partition_data(str(single), 0)
    flip(single.parent / "part0" / "graph.dgl", 4700)
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    try:
        with pytest.raises(sar.FormatError, match="graph.dgl at bytes .*: expected the sources of relation 0 as"):
            sar.construct_full_graph(data)
    finally:
        sar.comm.shutdown()


def test_damaged_descriptions(json_file: Path) -> None:
    text = json_file.read_text()
    json_file.write_text(text.replace('"random"', '"rendom"'))
    with pytest.raises(sar.FormatError, match='g.json: .*if it was edited on purpose, remove the key "checksum"'):
        load(json_file)
    edited = json.loads(text)
    edited["part_method"] = "by hand"
    del edited["checksum"]
    json_file.write_text(json.dumps(edited))
    load(json_file)
    sums = json_file.parent / "part1" / "checksums.crc"
    flip(sums, sums.stat().st_size // 2)
    with pytest.raises(sar.FormatError, match="checksums.crc: "):
        load(json_file, 1)
    sums.unlink()
    with pytest.raises(FileNotFoundError, match=f"{sums}.*named by {json_file}"):
        load(json_file, 1)


def test_info_verify(json_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("info", json_file, "--verify") == 0
    shown = capsys.readouterr().out
    assert shown.count(" yes ") == shown.count(" ok\n") == 1 + 4 * PARTS and "damaged" not in shown

    feats, graph = (json_file.parent / name for name in ("part1/node_feat.dgl", "part0/graph.dgl"))
    flip(feats, feats.stat().st_size - 1)
    flip(graph, 2000)
    graph.write_bytes(graph.read_bytes()[:-3])
    assert exit_code("info", json_file) == 1  # graph.dgl has not the size that it had
    capsys.readouterr()
    assert exit_code("info", json_file.parent, "--verify") == 1
    shown = capsys.readouterr().out
    assert shown.count(" damaged\n") == 2 and shown.count(" ok\n") == 1 + 4 * PARTS - 2
    assert f"{feats} at bytes " in shown and 'feature "_N/orig_id" as written' in shown
    assert f"{graph} at byte {graph.stat().st_size}: expected the end of the file after the" in shown
    assert exit_code("info", json_file, "--verify", "--json") == 1
    files = json.loads(capsys.readouterr().out)["files"]
    assert [len(file["damage"]) for file in files] == [0, 0, 1, 0, 0, 0, 0, 1, 0]

    json_file.write_text(json_file.read_text().replace('"num_parts": 2', '"num_parts": 3'))
    assert exit_code("info", json_file, "--verify") == 1
    assert "g.json" in capsys.readouterr().out


def test_verify_without_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_file = partition(tmp_path)
    assert exit_code("info", json_file, "--verify") == 0
    shown = capsys.readouterr().out
    assert " yes " not in shown and "Files without checksums were held against each other alone" in shown
    graph = json_file.parent / "part1" / "graph.dgl"
    whole = graph.read_bytes()
    for at in range(4500, len(whole), 8):  # until the structure contradicts itself
        flip(graph, at, 6)
        if exit_code("info", json_file, "--verify") == 1:
            break
        graph.write_bytes(whole)
    else:
        pytest.fail("no damage of the structure shows")
    assert str(graph) in capsys.readouterr().out


def test_what_is_no_file_is_not_opened(json_file: Path, tmp_path: Path) -> None:
    fifo, feats = tmp_path / "fifo.json", json_file.parent / "part0" / "node_feat.dgl"
    os.mkfifo(fifo)
    feats.unlink()
    feats.symlink_to(fifo)
    for what, do in {
        fifo: lambda: load(fifo),
        feats: lambda: load(json_file),
        Path("/dev/zero"): lambda: load(Path("/dev/zero")),
    }.items():
        kind = "a character device" if what.parts[1] == "dev" else r"a named pipe \(FIFO\)"
        error = in_time(do)
        with pytest.raises(sar.FormatError, match=f"^{what}: expected a regular file, .*found {kind}") as caught:
            raise error if isinstance(error, BaseException) else AssertionError(error)
        assert caught.value.file == str(what)


@pytest.mark.parametrize(
    "words",
    [["info"], ["info", "--verify"], ["plan", "--layers", "gcn:4"], ["partition", "--parts", "2", "--out", "out"]],
)
def test_commands_open_no_pipes(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert in_time(lambda: exit_code(*words, "pipe")) == 1
    captured = capsys.readouterr()
    assert "pipe: expected a regular file" in captured.err + captured.out


def test_pipes_beside_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``sar partition`` looks at all JSON files of the directory that it writes to."""
    json_file = partition(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    words = ["partition", str(tmp_path / "g.npz"), "--parts", "2", "--out", str(tmp_path), "--method", "random"]
    assert in_time(lambda: exit_code(*words)) == 0
    load(json_file)


def test_paths_outside(json_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "away").mkdir()
    (json_file.parent / "part0").rename(tmp_path / "away" / "part0")
    (tmp_path / "here").mkdir()
    description = json.loads(json_file.read_text())
    del description["checksum"]
    for name, path in description["part-0"].items():
        description["part-0"][name] = f"../away/{path}"
    moved = tmp_path / "here" / "g.json"
    moved.write_text(json.dumps(description))
    says = "inside the directory of this file, found .*away/part0.*sar.Config.allow_outside_paths"
    with pytest.raises(sar.FormatError, match=says) as caught:
        load(moved)
    assert caught.value.file == str(moved)
    assert sar.Config.allow_outside_paths is False
    try:
        sar.Config.allow_outside_paths = True
        edges, weights, features = load(moved)
        assert features["_N/features"].shape == (15, 3) and len(edges) == PARTS and weights
    finally:
        sar.Config.allow_outside_paths = False
    (json_file.parent / "part1").rename(tmp_path / "here" / "part1")
    for words in (["info", moved, "--verify"], ["plan", moved, "--layers", "gcn:4"]):
        try:
            assert exit_code(*words) == 1
            captured = capsys.readouterr()
            assert "--allow-outside-paths" in captured.err + captured.out
            assert exit_code(*words, "--allow-outside-paths") == 0
            capsys.readouterr()
        finally:
            sar.Config.allow_outside_paths = False


def test_dgl_loads_partitions_with_checksums(json_file: Path) -> None:
    distributed = pytest.importorskip("dgl").distributed
    assert "checksum" in json.loads(json_file.read_text())
    for part in range(PARTS):
        assert (json_file.parent / f"part{part}" / "checksums.crc").exists()
        graph, nodes, *_ = distributed.load_partition(str(json_file), part)
        _, _, features = load(json_file, part)
        assert graph.num_nodes() >= 15
        assert torch.equal(nodes["_N/features"], features["_N/features"])
