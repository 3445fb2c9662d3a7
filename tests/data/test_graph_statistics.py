"""What `sar info` says of a graph directory, against numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import sar
from sar import cli
from sar.data import graph_statistics
from tests.data.graphs import one_type, write_table


@settings(max_examples=20, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60),
    symmetrize=st.booleans(),
    block=st.sampled_from([1, 7, 1 << 20]),
)
def test_against_numpy(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], symmetrize: bool, block: int
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    source, target = np.array(pairs).T
    table = write_table(folder / "e.parquet", source=source, target=target)
    graph = sar.ingest(one_type(str(table), {"count": 12}), folder / "out", symmetrize=symmetrize)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_statistics, "_EDGES", block)
        patch.setattr(graph_statistics, "_NODES", 5 * block)
        told: list[tuple[int, int]] = []
        found = graph_statistics.describe(graph, lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]
    if symmetrize:
        other = source != target
        source, target = np.append(source, target[other]), np.append(target, source[other])
    edges = list(zip(source.tolist(), target.tolist()))
    one = found.edges[0]
    assert one.self_loops == sum(s == t for s, t in edges)
    assert one.duplicates == len(edges) - len(set(edges))
    assert one.symmetric == (sorted(edges) == sorted((t, s) for s, t in edges))
    for degrees, ends in ((one.in_degrees, target), (one.out_degrees, source)):
        count = np.bincount(ends, minlength=12)
        assert degrees.counts == dict(zip(*map(np.ndarray.tolist, np.unique(count, return_counts=True))))
        said = degrees.describe()
        assert said["max"] == count.max() and said["mean"] == pytest.approx(count.mean())
        for q in graph_statistics.QUANTILES:
            assert said[f"{100 * q:g}%"] == np.quantile(count, q, method="inverted_cdf")
        assert sum(n for _, n in degrees.histogram()) == 12
    assert found.isolated == {"_N": 12 - len({*source.tolist(), *target.tolist()})}


def test_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_table(tmp_path / "e.csv", a=["x", "y", "y", "z"], b=["y", "x", "x", "z"], w=[1, 2, 3, 4])
    sar.ingest(one_type(str(table), source="a", target="b", weight="w"), tmp_path / "out", name="small")
    assert cli.main(["info", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "small: 3 nodes, 4 edges" in text
    assert ["_N:_E:_N", "4", "no", "1", "1"] in [line.split() for line in text.splitlines()]
    assert ["2-3", "1", "####################"] in [line.split() for line in text.splitlines()]
    assert "edges/_N___E___N/weight.npy" in text and ["_N", "3", "text", "0"] in [x.split() for x in text.splitlines()]
    assert cli.main(["info", str(tmp_path / "out" / "graph.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["statistics"]["edge_types"][0]["duplicates"] == 1 and found["description"]["name"] == "small"


def test_damage_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_table(tmp_path / "e.csv", a=[0, 1, 2], b=[1, 2, 0], w=[1, 2, 3])
    graph = sar.ingest(one_type(str(table), source="a", target="b", weight="w"), tmp_path / "out")
    assert cli.main(["info", str(graph.path), "--verify"]) == 0 and "damaged" not in capsys.readouterr().out
    weight = graph.path / graph.edge_types[0].features["weight"].file
    data = bytearray(weight.read_bytes())
    data[-1] ^= 1
    weight.write_bytes(data)
    assert cli.main(["info", str(graph.path), "--verify"]) == 1
    shown = [line for line in capsys.readouterr().out.splitlines() if "weight" in line]
    assert shown[0].split()[-1] == "damaged" and "as written, by its checksum" in shown[1]
    weight.write_bytes(data[:-1])
    with pytest.raises(sar.FormatError, match="weight.npy"):
        sar.data.graph_directory.GraphDirectory(graph.path)


def test_refused_directories(tmp_path: Path) -> None:
    """The engine's own tests have what else may be wrong with a description."""
    table = write_table(tmp_path / "e.csv", a=[0, 1, 2], b=[1, 2, 0])
    graph = sar.ingest(one_type(str(table)), tmp_path / "out")
    description = json.loads(Path(graph.file).read_text())
    del description["checksum"]
    description["edge_types"][0]["count"] = 2
    Path(graph.file).write_text(json.dumps(description))
    for path, said in (
        (graph.path, '2 elements of "source" of _N:_E:_N, found 3'),
        (tmp_path, "a directory without one; sar ingest makes one"),
        (table, "expected the directory of"),
    ):
        with pytest.raises(sar.FormatError, match=said):
            sar.data.graph_directory.GraphDirectory(path)
