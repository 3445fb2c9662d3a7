"""Graph directories out of tables, against numpy."""

from __future__ import annotations

import itertools
from pathlib import Path

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import sar
from tests.data.graphs import check_files, edges_of, expected_edges, ids_of, one_type, write_table

SWITCHES = [
    dict(zip(("symmetrize", "deduplicate", "self_loops"), on)) for on in itertools.product((False, True), repeat=3)
]


def random_pairs(nodes: int, edges: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with repetitions and self loops, in which every node occurs."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, nodes, edges), rng.integers(0, nodes, edges)
    source[: nodes // 2], target[: nodes - nodes // 2] = np.arange(nodes // 2), np.arange(nodes // 2, nodes)
    source[-9:-6], target[-9:-6] = target[-6:-3], source[-6:-3]  # both directions
    source[-3:], target[-3:] = source[:3], target[:3]
    return source, target


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "+".join(k for k, on in s.items() if on) or "plain")
def test_edges_and_their_values(tmp_path: Path, switches: dict[str, bool]) -> None:
    source, target = random_pairs(60, 400)
    weight = np.random.default_rng(1).random(400, np.float32)
    kind = np.arange(400) % 7
    table = write_table(tmp_path / "e.parquet", src=source, dst=target, w=weight, a=weight * 2, b=-weight, kind=kind)
    schema = one_type(str(table), weight="w", features=["a", "b"], columns=["kind"])
    graph = sar.ingest(schema, tmp_path / "graph", **switches)
    s, t, number = expected_edges(source, target, 60, **switches)
    assert [*map(np.ndarray.tolist, edges_of(graph))] == [s.tolist(), t.tolist()]
    one = graph.edge_types[0]
    added = number < 0
    assert (graph.map(one.features["weight"]) == np.where(added, 1, weight[number])).all()
    pair = np.stack([weight * 2, -weight], 1)
    assert (graph.map(one.features["features"]) == np.where(added[:, None], 1, pair[number])).all()
    assert (graph.map(one.features["kind"]) == np.where(added, 1, kind[number])).all()
    assert graph.map(one.features["kind"]).dtype == np.int64 and graph.map(one.source).dtype == np.int32
    assert one.symmetric is (True if switches["symmetrize"] else None)
    check_files(graph)


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(1, 12),
    pairs=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=40),
    switches=st.sampled_from(SWITCHES),
)
def test_random_pairs(tmp_path_factory: pytest.TempPathFactory, nodes: int, pairs: list, switches: dict) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    source, target = (np.array(pairs).T % nodes).astype(np.int64)
    table = write_table(folder / "e.parquet", source=source, target=target)
    graph = sar.ingest(one_type(str(table), {"count": nodes}), folder / "graph", **switches)
    s, t, _ = expected_edges(source, target, nodes, **switches)
    assert [*map(np.ndarray.tolist, edges_of(graph))] == [s.tolist(), t.tolist()]
    assert graph.node_types["_N"].count == nodes and graph.node_types["_N"].ids is None


def test_edges_that_just_do_not_fit(tmp_path: Path) -> None:
    """A sort of about as many bytes as there is memory goes to disk in time."""
    source, target = np.random.default_rng(0).integers(0, 200_000, (2, 4_200_000))
    table = write_table(tmp_path / "e.parquet", source=source, target=target)
    schema = one_type(str(table), {"count": 200_000})
    graph = sar.ingest(schema, tmp_path / "graph", symmetrize=True, memory="384MiB", threads=1)
    assert graph.edge_types[0].count == 2 * len(source) - np.count_nonzero(source == target)


def test_as_dgl(tmp_path: Path) -> None:
    """to_bidirected, to_simple and add_self_loop."""
    source, target = random_pairs(50, 300)
    table = write_table(tmp_path / "e.parquet", source=source, target=target)
    plain = dgl.graph((torch.tensor(source), torch.tensor(target)), num_nodes=50)

    def pairs(graph: dgl.DGLGraph) -> list[tuple[int, int]]:
        s, t = graph.edges()
        return sorted(zip(t.tolist(), s.tolist()))

    def ours(name: str, **switches: bool) -> list[tuple[int, int]]:
        s, t = edges_of(sar.ingest(one_type(str(table)), tmp_path / name, **switches))
        return list(zip(t.tolist(), s.tolist()))

    assert ours("a") == pairs(plain)
    assert ours("b", deduplicate=True) == pairs(dgl.to_simple(plain))
    both = dgl.to_bidirected(plain)
    assert ours("c", symmetrize=True, deduplicate=True) == pairs(both)
    looped = dgl.add_self_loop(dgl.remove_self_loop(both))
    assert ours("d", symmetrize=True, deduplicate=True, self_loops=True) == pairs(looped)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize("kind", ["text", "sparse"])
def test_ids_of_any_type(tmp_path: Path, suffix: str, kind: str) -> None:
    source, target = random_pairs(40, 200)
    rng = np.random.default_rng(3)
    if kind == "text":
        names = [f'p"{n:03d}, é' for n in rng.permutation(40)]
    else:
        names = rng.choice(2**62, 40, replace=False).tolist()
    nodes = write_table(tmp_path / f"n{suffix}", name=names, age=np.arange(40))
    half = 100
    for k, part in enumerate((slice(0, half), slice(half, None))):
        write_table(
            tmp_path / f"e{k}{suffix}", src=[names[i] for i in source[part]], dst=[names[i] for i in target[part]]
        )
    schema = one_type(str(tmp_path / f"e?{suffix}"), {"files": str(nodes), "id": "name", "features": "age"})
    graph = sar.ingest(schema, tmp_path / "graph")
    assert ids_of(graph) == names
    s, t, _ = expected_edges(source, target, 40)
    assert [*map(np.ndarray.tolist, edges_of(graph))] == [s.tolist(), t.tolist()]
    assert (graph.map(graph.node_types["_N"].features["features"])[:, 0] == np.arange(40)).all()
    # without a table of nodes, in ascending order of the ids
    graph = sar.ingest(one_type(str(tmp_path / f"e?{suffix}")), tmp_path / "alone")
    rank = np.argsort(np.argsort(names))
    s, t, _ = expected_edges(rank[source], rank[target], 40)
    assert ids_of(graph) == sorted(names)
    assert [*map(np.ndarray.tolist, edges_of(graph))] == [s.tolist(), t.tolist()]
    check_files(graph)


def test_numbers_that_text_spells_otherwise_stay_apart(tmp_path: Path) -> None:
    write_table(tmp_path / "e.csv", a=["007", "7", "8"], b=["7", "8", "007"])
    graph = sar.ingest(one_type(str(tmp_path / "e.csv")), tmp_path / "graph")
    assert ids_of(graph) == ["007", "7", "8"]
    write_table(tmp_path / "e.csv", a=["10", "7", "9"], b=["7", "10", "9"])
    assert ids_of(sar.ingest(one_type(str(tmp_path / "e.csv")), tmp_path / "numbers")) == [7, 9, 10]
    text = one_type(str(tmp_path / "e.csv"), {"id_type": "text"})
    assert ids_of(sar.ingest(text, tmp_path / "text")) == ["10", "7", "9"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_labels_splits_and_features(tmp_path: Path, suffix: str) -> None:
    names = ["a", "b", "c", "d", "e"]
    edges = write_table(tmp_path / f"e{suffix}", source=names, target=names[::-1])
    nodes = write_table(
        tmp_path / f"n{suffix}",
        id=names,
        x=[1.5, 2, 3, 4, 5],
        y=[5, 4, 3, 2, 1],
        group=["red", None, "blue", "red", "-"],
        number=[3, 0, None, -1, 2],
        price=[1.5, None, 3, 4, 5],
        part=["train", "Valid", "test", None, " dev"],
    )

    def labels(name: str, **more: str) -> sar.data.graph_directory.GraphDirectory:
        table = {"files": str(nodes), "id": "id", "features": ["x", "y"], "columns": ["y"], "split": "part", **more}
        return sar.ingest(one_type(str(edges), table), tmp_path / name)

    graph = labels("named", label="group", unlabelled="-")
    found = graph.node_types["_N"]
    read = {name: graph.map(array) for name, array in found.features.items()}
    assert found.classes == ["blue", "red"] and read["labels"].tolist() == [1, -1, 0, 1, -1]
    assert read["features"].tolist() == [[1.5, 5], [2, 4], [3, 3], [4, 2], [5, 1]]
    assert read["features"].dtype == np.float32 and read["y"].dtype == np.int64 and read["y"].shape == (5,)
    masks = [read[f"{split}_mask"].tolist() for split in ("train", "val", "test")]
    assert masks == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 1], [0, 0, 1, 0, 0]]
    graph = labels("numbers", label="number")
    read["labels"] = graph.map(graph.node_types["_N"].features["labels"])
    assert read["labels"].tolist() == [3, 0, -1, -1, 2] and read["labels"].dtype == np.int64
    graph = labels("prices", label="price")
    read["labels"] = graph.map(graph.node_types["_N"].features["labels"])
    assert read["labels"].dtype == np.float32 and np.isnan(read["labels"]).tolist() == [False, True] + [False] * 3


def test_features_in_lists_and_files(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((30, 4))
    source, target = random_pairs(30, 90)
    write_table(tmp_path / "e.parquet", src=source, dst=target)
    write_table(tmp_path / "n.parquet", vector=rows.tolist(), w2=rows[:, 2], w1=rows[:, 1], more=np.arange(30))
    np.save(tmp_path / "wide.npy", np.asfortranarray(rows.astype(np.float16)))
    features = {"features": ["vector", "more"], "half": "wide.npy", "words": "w*"}
    text = f"edges: {{'_N:_E:_N': {{files: e.parquet}}}}\nnodes: {{_N: {{files: n.parquet, features: {features}}}}}\n"
    (tmp_path / "schema.yaml").write_text(text)
    graph = sar.ingest(tmp_path / "schema.yaml", tmp_path / "graph")
    read = {name: graph.map(array) for name, array in graph.node_types["_N"].features.items()}
    assert (read["features"] == np.column_stack([rows, np.arange(30)]).astype(np.float32)).all()
    assert (read["words"] == rows[:, [2, 1]].astype(np.float32)).all()
    assert (read["half"] == rows.astype(np.float16)).all() and read["half"].dtype == np.float16
    assert ids_of(graph) == list(range(30))


def test_several_types(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    papers, authors = [f"p{n}" for n in rng.permutation(20)], (rng.choice(10**12, 8, replace=False)).tolist()
    cites, writes = rng.integers(0, 20, (2, 60)), np.stack([rng.integers(0, 8, 30), rng.integers(0, 20, 30)])
    write_table(tmp_path / "papers.parquet", key=papers, x=np.arange(20.0), y=np.arange(20) % 3)
    write_table(tmp_path / "cites.tsv", a=[papers[i] for i in cites[0]], b=[papers[i] for i in cites[1]])
    write_table(
        tmp_path / "writes.parquet", author=[authors[i] for i in writes[0]], paper=[papers[i] for i in writes[1]]
    )
    (tmp_path / "schema.yaml").write_text(
        """
name: library
nodes:
  paper: {files: papers.parquet, id: key, features: x, label: y}
  author:
edges:
  paper:cites:paper: {files: cites.tsv, symmetrize: true, deduplicate: true}
  author:writes:paper: {files: writes.parquet, source: author, target: paper}
  paper:written by:author: {files: [writes.parquet], source: paper, target: author}
"""
    )
    graph = sar.ingest(tmp_path / "schema.yaml", tmp_path / "graph")
    assert graph.name == "library" and list(graph.node_types) == ["paper", "author"]
    used = sorted({authors[i] for i in writes[0]})
    assert ids_of(graph, "paper") == papers and ids_of(graph, "author") == used
    number = {name: n for n, name in enumerate(used)}
    author = np.array([number[authors[i]] for i in writes[0]])
    wanted = [
        expected_edges(cites[0], cites[1], 20, symmetrize=True, deduplicate=True),
        expected_edges(author, writes[1], 20),
        expected_edges(writes[1], author, 20),
    ]
    for one, (s, t, _) in zip(graph.edge_types, wanted):
        assert [*map(np.ndarray.tolist, edges_of(graph, one))] == [s.tolist(), t.tolist()], one.type
    assert graph.edge_types[2].source.file == "edges/paper__written%20by__author/source.npy"
    check_files(graph)
