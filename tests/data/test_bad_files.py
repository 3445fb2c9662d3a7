"""Files that are damaged, missing or contradict themselves: what is raised, what it says, and the place in the file."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sar
from sar.distributed.network import free_port
from sar.partitioning.dataset import Dataset
from tests.data import cases_files
from tests.support.partitions import PARTS, E, N, graph_file, partition
from tests.support.sessions import Workers

FILES = ["graph.dgl", "node_feat.dgl", "edge_feat.dgl"]
MEND = "copy it again, or partition the graph again"
ARRAY = struct.pack("<Q", 0xDD5E40F096B4A13F)  # what every array in a DGL file begins with


@pytest.fixture
def json_file(tmp_path: Path) -> Path:
    return partition(tmp_path)


def load(json_file: Path, part: int = 0) -> Any:
    """Everything of a partition."""
    data = sar.load_dgl_partition_data(str(json_file), part, torch.device("cpu"))
    return data, data.all_shard_edges, data.edge_features


def damaged(json_file: Path, name: str, says: str) -> sar.FormatError:
    """Loading must fail for the file ``name``, with what was expected and found, the place, and the remedy."""
    with pytest.raises(sar.FormatError, match=says) as caught:
        load(json_file)
    error = caught.value
    assert Path(error.file).name == name and str(error).startswith(error.file)
    assert "expected " in str(error) and ", found " in str(error) and MEND in str(error)
    if error.offset >= 0:
        assert f" at byte {error.offset}: " in str(error)
    return error


@pytest.mark.parametrize("name", ["g.json", *(f"part0/{name}" for name in FILES)])
def test_a_missing_file(json_file: Path, name: str) -> None:
    (json_file.parent / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{json_file.parent / name}: no such file") as caught:
        load(json_file)
    assert name == "g.json" or f"named by {json_file}" in str(caught.value)
    if name.startswith("part0"):
        load(json_file, 1)  # the other worker's files are whole


def test_a_directory_in_place_of_a_file(json_file: Path) -> None:
    path = json_file.parent / "part0" / "graph.dgl"
    path.unlink()
    path.mkdir()
    with pytest.raises(sar.FormatError, match=f"{path}: expected a regular file, .* found a directory"):
        load(json_file)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file(json_file: Path, name: str) -> None:
    path = json_file.parent / "part0" / name
    whole = path.read_bytes()
    load(json_file)
    long = len(whole)
    for keep in sorted({0, 1, 7, 8, 20, 31, long // 3, long // 2, *range(max(0, long - 700), long, 13)}):
        path.write_bytes(whole[:keep])
        error = damaged(json_file, name, "the end of the file|left of the file")
        assert 0 <= error.offset <= keep


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_magic_number(json_file: Path, name: str) -> None:
    path = json_file.parent / "part0" / name
    whole = path.read_bytes()
    path.write_bytes(b"PK\3\4 zip" + whole[8:])
    assert damaged(json_file, name, "the magic number 0x[0-9a-f]+ of a file of (graphs|tensors)").offset == 0
    at = whole.index(ARRAY)
    path.write_bytes(whole[:at] + b"\0" * 8 + whole[at + 8 :])
    assert damaged(json_file, name, "magic number").offset == at


@pytest.mark.parametrize("size", [-1, 1 << 20, 1 << 40, 1 << 61, (1 << 62) + 1, (1 << 63) - 1])
@pytest.mark.parametrize("name", FILES)
def test_array_sizes_that_overflow_or_exceed_the_file(json_file: Path, name: str, size: int) -> None:
    """Products of such sizes wrap around, so that a careless reader would see a small array."""
    path = json_file.parent / "part0" / name
    whole = path.read_bytes()
    shape = whole.index(ARRAY) + 32
    path.write_bytes(whole[:shape] + struct.pack("<q", size) + whole[shape + 8 :])
    assert damaged(json_file, name, re.escape(str(size))).offset == shape
    count = 4104 if name == "graph.dgl" else 8  # of labels; of tensors
    path.write_bytes(whole[:count] + struct.pack("<q", size) + whole[count + 8 :])
    assert 0 <= damaged(json_file, name, str(size % (1 << 64))).offset <= count + 8


def test_too_many_dimensions(json_file: Path) -> None:
    path = json_file.parent / "part0" / "node_feat.dgl"
    whole = path.read_bytes()
    at = whole.index(ARRAY) + 24
    path.write_bytes(whole[:at] + struct.pack("<i", 1 << 30) + whole[at + 4 :])
    assert damaged(json_file, "node_feat.dgl", "dimensions").offset == at


def test_feature_rows_that_are_not_the_partitions_nodes(json_file: Path) -> None:
    here, there = (json_file.parent / part / "node_feat.dgl" for part in ("part0", "part1"))
    with Dataset(graph_file(json_file.parent / "h.npz")) as dataset:
        dataset.write_parts(
            (np.arange(N) >= 11).astype(np.int32), PARTS, str(json_file.parent / "h"), {"name": "h", "method": "random"}
        )
    shutil.copy(json_file.parent / "h" / "part0" / "node_feat.dgl", here)  # 11 rows for 15 nodes
    damaged(json_file, "node_feat.dgl", '15.*"_N/features".*, found .*11')
    load(json_file, 1)
    assert there.exists()


def test_ids_that_are_not_the_partitions(json_file: Path) -> None:
    path = json_file.parent / "part0" / "graph.dgl"
    whole = path.read_bytes()
    at = whole.index(struct.pack("<3q", 0, 1, 2))  # ids of nodes
    path.write_bytes(whole[: at + 8] + struct.pack("<q", 1 << 50) + whole[at + 16 :])
    assert damaged(json_file, "graph.dgl", f"expected id 1, .* found {1 << 50}").offset == at + 8
    # one part, the edge id 0 twice
    (json_file.parent / "one").mkdir()
    single = partition(json_file.parent / "one", 1)
    path = single.parent / "part0" / "graph.dgl"
    whole, ids = path.read_bytes(), struct.pack(f"<{E}q", *range(E))
    at = whole.index(ids)
    path.write_bytes(whole[: at + 8] + ids[:8] + whole[at + 16 :])
    damaged(single, "graph.dgl", "each edge id once, found 0 again")
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    try:
        graph = sar.construct_full_graph(sar.load_dgl_partition_data(str(single), 0))
        graph.srcdata["h"], graph.edata["w"] = torch.ones(N, 1), torch.ones(E, 1)
        with pytest.raises(sar.FormatError, match=f"id of its own.*id 0 is there twice.*{MEND}"):
            graph.update_all(sar.function.u_mul_e("h", "w", "m"), sar.function.sum("m", "h"))  # needs edges in order
    finally:
        sar.comm.shutdown()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a JSON object"),
        ("name: g", "a JSON object, found invalid character"),
        ('{"graph_name": "g", "num_parts": ', "unexpected end of JSON"),
        ("[]", "a JSON object"),
        ("{}", 'the key "graph_name", a string, found no such key'),
    ],
)
def test_a_description_that_is_no_json(json_file: Path, text: str, says: str) -> None:
    json_file.write_text(text)
    damaged(json_file, "g.json", says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_parts": 3}, '3 ranges of type "_N" in "node_map", one for each partition, found 2'),
        ({"num_parts": 0}, '"num_parts" to be at least 1, found 0'),
        ({"num_parts": "two"}, '"num_parts" to be a whole number'),
        ({"num_nodes": N + 1}, f"cover all {N + 1} ids"),
        ({"part-0": {}}, '"part-0"'),
        ({"node_map": {"_N": [[0, 15], [16, 30]]}}, "to begin at 15"),
    ],
)
def test_a_description_that_contradicts_itself(json_file: Path, change: dict[str, Any], says: str) -> None:
    json_file.write_text(json.dumps({**json.loads(json_file.read_text()), **change}))
    damaged(json_file, "g.json", says)


def test_more_workers_than_parts(json_file: Path, two: Workers) -> None:
    for part in (-1, PARTS, 7):
        says = f"partition {part} asked for.*the graph has 2 .0 to 1.*start 2 workers, or partition the graph into"
        with pytest.raises(ValueError, match=says):
            load(json_file, part)
    # the number of workers, where the partition exists
    for parts in (1, 3):
        other = json_file.parent / str(parts)
        other.mkdir()
        message = two.run(cases_files.load_message, json_file=str(partition(other, parts)))[0]
        assert f"{parts} partitions, but 2 workers" in message
        assert f"start {parts} workers, or partition the graph into 2" in message


def test_npz_files(tmp_path: Path) -> None:
    """What ``sar partition`` reads."""
    good = Path(graph_file(tmp_path / "good.npz")).read_bytes()
    ends = np.zeros((2, E), np.int64)

    def refused(error: type[Exception], says: str, content: bytes | None = None, **changes: Any) -> None:
        path = tmp_path / "bad.npz"
        graph_file(path, **changes)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(error, match=says) as caught, Dataset(str(path)) as dataset:
            dataset.assign("contiguous", 2, 0)
        assert "bad.npz" in str(caught.value)

    with pytest.raises(FileNotFoundError, match="none.npz"):
        Dataset(str(tmp_path / "none.npz"))
    for content in (b"", b"not a zip", good[:-30], good[: len(good) // 2]):
        refused(sar.FormatError, "a zip of arrays as numpy.savez writes it", content)
    for rows in (90, 10**18, 2**62 + 30, 10**30):
        shape = f"({rows}, 3), }}".encode()
        larger = good.replace(b"(30, 3), }".ljust(len(shape)), shape)
        assert len(larger) == len(good) and larger != good
        refused(sar.FormatError, f"{rows}", larger)
    refused(sar.FormatError, '30 rows of "y", as many as "x" has, found 29', y=np.arange(29))
    refused(sar.FormatError, '"edge_index" of whole numbers, found float64', edge_index=ends.astype(float))
    refused(sar.FormatError, "save its transpose", edge_index=ends.T)
    refused(sar.FormatError, "edge 0 between two of the 30 nodes, found 30 -> 30", edge_index=ends + 30)
    refused(sar.FormatError, "edge 0 between two of the 30 nodes, found -1 -> -1", edge_index=ends - 1)
    refused(sar.FormatError, "pickled Python objects.*save numbers", odd=np.array([{}], dtype=object))
    refused(sar.FormatError, "strings.*leave them out", odd=np.array(["a"]))
    refused(sar.FormatError, "big-endian numbers.*newbyteorder", odd=np.zeros(3, ">f4"))


def test_arguments_of_partitioning(tmp_path: Path) -> None:
    with Dataset(graph_file(tmp_path / "g.npz")) as dataset:
        fine = np.zeros(N, np.int32)
        for assignment, parts, name, error, says in (
            (fine, 0, "g", ValueError, "0 partitions: at least 1"),
            (fine[:5], 1, "g", ValueError, "an assignment of 5 nodes for a graph of 30"),
            (fine + 3, 2, "g", ValueError, "node 0 is assigned to partition 3: partitions are 0 to 1"),
            (fine - 1, 2, "g", ValueError, "node 0 is assigned to partition -1"),
            (fine, 1, "a/b", ValueError, '"a/b" cannot be the name of a graph'),
            (fine.astype(np.int64), 1, "g", TypeError, "assignment is int64, and must be int32"),
        ):
            with pytest.raises(error, match=says):
                dataset.write_parts(assignment, parts, str(tmp_path / "out"), {"name": name, "method": "random"})
        assert not (tmp_path / "out").exists()
        with pytest.raises(NotADirectoryError, match="g.npz"):
            dataset.write_parts(fine, 1, str(tmp_path / "g.npz"), {"name": "g", "method": "random"})
        with pytest.raises(ValueError, match='no partitioning method "best": there are random, contiguous and stored'):
            dataset.assign("best", 2, 0)
