"""Graph directories out of everything that is no table: arrays, OGB's and DGL's files, graphs of DGL and PyG."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import sar
from sar.data.graph_directory import GraphDirectory
from tests.data.graphs import check_files, edges_of, expected_edges, ids_of

N, E = 30, 120
RNG = np.random.default_rng(7)
EDGES = RNG.integers(0, N, (2, E))
X = RNG.random((N, 5), np.float32)
Y = RNG.integers(0, 4, N)
TRAIN = RNG.random(N) < 0.5
WEIGHT = RNG.random(E, np.float32)
ATTR = RNG.random((E, 3), np.float32)


def node_features(graph: GraphDirectory, node_type: str = "_N") -> dict[str, np.ndarray]:
    return {name: np.asarray(graph.map(a)) for name, a in graph.node_types[node_type].features.items()}


def check_edges(graph: GraphDirectory, edges: np.ndarray, nodes: int, which: int = 0, **values: np.ndarray) -> None:
    """The edges, and their features in the same order."""
    one = graph.edge_types[which]
    s, t, number = expected_edges(edges[0], edges[1], nodes)
    assert [*map(np.ndarray.tolist, edges_of(graph, one))] == [s.tolist(), t.tolist()]
    assert set(one.features) == set(values)
    order = np.lexsort((np.arange(len(number)), s, t))
    for name, wanted in values.items():
        found = graph.map(one.features[name])
        assert found.dtype == wanted.dtype and (found == wanted[number[order]]).all(), name


def gz(path: Path, rows: Any, header: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, np.atleast_1d(row).tolist())) for row in rows]
    path.write_bytes(gzip.compress(("\n".join(([header] if header else []) + lines) + "\n").encode()))


@pytest.mark.parametrize("form", ["npz", "compressed", "directory"])
@pytest.mark.parametrize("pairs", ["2E", "E2", "fortran"])
def test_arrays(tmp_path: Path, form: str, pairs: str) -> None:
    edges = {"2E": EDGES, "E2": EDGES.T.copy(), "fortran": np.asfortranarray(EDGES)}[pairs]
    arrays = {"edge_index": edges, "x": X, "y": Y, "train_mask": TRAIN, "kind": ATTR, "age": Y * 2}
    source = tmp_path / ("graph" if form == "directory" else "graph.npz")
    if form == "directory":
        source.mkdir()
        for name, array in arrays.items():
            np.save(source / f"{name}.npy", array)
    else:
        (np.savez_compressed if form == "compressed" else np.savez)(source, **arrays)
    graph = sar.ingest(source, tmp_path / "out")
    check_edges(graph, EDGES, N, kind=ATTR)
    found = node_features(graph)
    assert (found["features"] == X).all() and (found["labels"] == Y).all() and (found["age"] == Y * 2).all()
    assert (found["train_mask"] == TRAIN).all() and found["train_mask"].dtype == np.uint8
    check_files(graph)


def test_arrays_of_several_types(tmp_path: Path) -> None:
    writes = np.stack([RNG.integers(0, 9, 40), RNG.integers(0, N, 40)])
    np.savez(
        tmp_path / "g.npz",
        **{
            "paper/x": X,
            "author/num_nodes": 11,
            "paper:cites:paper/edge_attr": ATTR,
            "author:writes:paper/edge_index": writes,
            "paper:cites:paper/edge_index": EDGES,
        },
    )
    graph = sar.ingest(tmp_path / "g.npz", tmp_path / "out")
    assert [(name, t.count) for name, t in graph.node_types.items()] == [("paper", N), ("author", 11)]
    assert [one.type[1] for one in graph.edge_types] == ["cites", "writes"]
    check_edges(graph, EDGES, N, edge_attr=ATTR)
    check_edges(graph, writes, N, 1)
    assert (node_features(graph, "paper")["features"] == X).all()


def test_edges_in_one_npy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "pairs.npy", EDGES.T.astype(np.int32))
    np.save(tmp_path / "x.npy", X)
    schema = {"nodes": {"_N": {"features": "x.npy"}}, "edges": {"_N:_E:_N": {"files": "pairs.npy"}}}
    (tmp_path / "schema.yaml").write_text(json.dumps(schema))  # JSON is YAML
    graph = sar.ingest(tmp_path / "schema.yaml", tmp_path / "out")
    check_edges(graph, EDGES, N)
    assert (node_features(graph)["features"] == X).all()


def test_dgl_graph(tmp_path: Path) -> None:
    given = dgl.graph((torch.tensor(EDGES[0]), torch.tensor(EDGES[1])), num_nodes=N + 2)
    given.ndata["feat"] = torch.zeros(N + 2, 5)
    given.edata["w"] = torch.tensor(WEIGHT)
    given.ndata["half"] = torch.linspace(0, 1, N + 2, dtype=torch.bfloat16).view(-1, 1)
    graph = sar.ingest(given, tmp_path / "one")
    check_edges(graph, EDGES, N + 2, w=WEIGHT)
    assert graph.node_types["_N"].count == N + 2 and node_features(graph)["feat"].shape == (N + 2, 5)
    assert np.array_equal(node_features(graph)["half"], given.ndata["half"].float().numpy())
    ends = {("a", "to", "b"): (torch.tensor([0, 1, 1]), torch.tensor([2, 0, 2])), ("b", "back", "a"): ([2], [0])}
    several = dgl.heterograph({key: tuple(map(torch.as_tensor, pair)) for key, pair in ends.items()})
    several.nodes["b"].data["h"] = torch.arange(3)
    graph = sar.ingest(several, tmp_path / "several", self_loops=True)
    check_edges(graph, np.array([[0, 1, 1], [2, 0, 2]]), 3)
    assert [one.type for one in graph.edge_types] == several.canonical_etypes
    assert node_features(graph, "b")["h"].tolist() == [0, 1, 2]


def test_pyg_graph(tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.data")
    given = pyg.Data(
        x=torch.tensor(X), y=torch.tensor(Y), edge_index=torch.tensor(EDGES), edge_attr=torch.tensor(ATTR), name="text"
    )
    given.edge_weight, given.train_mask = torch.tensor(WEIGHT), torch.tensor(TRAIN)
    graph = sar.ingest(given, tmp_path / "one")
    check_edges(graph, EDGES, N, edge_attr=ATTR, weight=WEIGHT)
    found = node_features(graph)
    assert set(found) == {"features", "labels", "train_mask"} and (found["features"] == X).all()
    several = pyg.HeteroData()
    several["paper"].x = torch.tensor(X)
    several["author"].num_nodes = 4
    several["paper", "cites", "paper"].edge_index = torch.tensor(EDGES)
    several["author", "writes", "paper"].edge_index = torch.tensor([[3, 0], [1, 1]])
    graph = sar.ingest(several, tmp_path / "several")
    check_edges(graph, EDGES, N)
    check_edges(graph, np.array([[3, 0], [1, 1]]), N, 1)


@pytest.mark.parametrize("form", ["text", "binary"])
def test_ogb(tmp_path: Path, form: str) -> None:
    raw = tmp_path / "raw"
    labels = Y.astype(float)
    labels[3] = np.nan
    if form == "text":
        gz(raw / "edge.csv.gz", EDGES.T)
        gz(raw / "num-node-list.csv.gz", [N])
        gz(raw / "num-edge-list.csv.gz", [E])
        gz(raw / "node-feat.csv.gz", X)
        gz(raw / "edge-feat.csv.gz", ATTR)
        gz(raw / "node_year.csv.gz", Y + 2000)
        gz(raw / "node-label.csv.gz", labels)
    else:
        raw.mkdir()
        lists = {"num_nodes_list": [N], "num_edges_list": [E], "node_year": Y + 2000}
        np.savez(raw / "data.npz", edge_index=EDGES, node_feat=X, edge_feat=ATTR, **lists)
        np.savez(raw / "node-label.npz", node_label=labels[:, None])
    for split, begin in (("train", 0), ("valid", 10), ("test", 20)):
        gz(tmp_path / "split" / "time" / f"{split}.csv.gz", range(begin, begin + 10))
    names = [f"key{n}" for n in RNG.permutation(N)]
    rows = [f"{n},{names[n]}" for n in RNG.permutation(N)]
    (tmp_path / "mapping").mkdir()
    (tmp_path / "mapping" / "nodeidx2key.csv.gz").write_bytes(
        gzip.compress(("node idx,key\n" + "\n".join(rows)).encode())
    )
    graph = sar.ingest(tmp_path, tmp_path / "out")
    check_edges(graph, EDGES, N, features=ATTR)
    found = node_features(graph)
    assert (found["features"] == X).all() and found["features"].dtype == np.float32
    assert (
        found["labels"].tolist() == [-1 if n == 3 else y for n, y in enumerate(Y)] and found["labels"].dtype == np.int64
    )
    assert found["node_year"].reshape(-1).tolist() == (Y + 2000).tolist()
    assert found["val_mask"].tolist() == [int(10 <= n < 20) for n in range(N)] and ids_of(graph) == names


@pytest.mark.parametrize("form", ["text", "binary"])
def test_ogb_of_several_types(tmp_path: Path, form: str) -> None:
    raw, writes = tmp_path / "raw", np.stack([RNG.integers(0, 6, 20), RNG.integers(0, N, 20)])
    if form == "text":
        gz(raw / "num-node-dict.csv.gz", [[6, N]], "author,paper")
        gz(raw / "triplet-type-list.csv.gz", [["paper", "cites", "paper"], ["author", "writes", "paper"]])
        gz(raw / "relations" / "paper___cites___paper" / "edge.csv.gz", EDGES.T)
        gz(raw / "relations" / "author___writes___paper" / "edge.csv.gz", writes.T)
        gz(raw / "node-feat" / "paper" / "node-feat.csv.gz", X)
        gz(raw / "node-label" / "paper" / "node-label.csv.gz", Y)
    else:
        raw.mkdir()
        np.savez(raw / "num_nodes_dict.npz", author=6, paper=N)
        np.savez(raw / "edge_index_dict.npz", **{"paper___cites___paper": EDGES, "author___writes___paper": writes})
        np.savez(raw / "node_feat_dict.npz", paper=X)
        np.savez(raw / "node-label.npz", paper=Y[:, None])
    gz(tmp_path / "split" / "time" / "paper" / "train.csv.gz", range(0, 10))
    graph = sar.ingest(tmp_path / "raw", tmp_path / "out", symmetrize=True)
    assert [one.type[1] for one in graph.edge_types] == ["writes", "cites"]
    assert [one.symmetric for one in graph.edge_types] == [None, True]
    check_edges(graph, writes, N)
    found = node_features(graph, "paper")
    assert (found["features"] == X).all() and (found["labels"] == Y).all() and found["train_mask"].sum() == 10


@pytest.mark.parametrize("edges", ["csv", "numpy", "parquet"])
def test_chunks(tmp_path: Path, edges: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    files = []
    for k, part in enumerate((slice(0, 50), slice(50, E))):
        name = {"csv": f"e{k}.csv", "numpy": f"e{k}.npy", "parquet": f"e{k}.parquet"}[edges]
        if edges == "csv":
            np.savetxt(tmp_path / name, EDGES.T[part], fmt="%d", delimiter=" ")
        elif edges == "numpy":
            np.save(tmp_path / name, EDGES.T[part])
        else:
            pa.parquet.write_table(pa.table({"a": EDGES[0, part], "b": EDGES[1, part]}), tmp_path / name)
        files.append(name)
    np.save(tmp_path / "x0.npy", X[:20])
    np.save(tmp_path / "x1.npy", X[20:])
    np.save(tmp_path / "w.npy", WEIGHT)
    pa.parquet.write_table(pa.table({"value": Y}), tmp_path / "y.parquet")
    form = {"name": edges, "delimiter": " "}
    content = {
        "graph_name": "chunks",
        "node_type": ["n"],
        "num_nodes_per_chunk": [[20, 10]],
        "edge_type": ["n:r:n"],
        "num_edges_per_chunk": [[50, E - 50]],
        "edges": {"n:r:n": {"format": form, "data": files}},
        "node_data": {
            "n": {
                "feat": {"format": {"name": "numpy"}, "data": ["x0.npy", "x1.npy"]},
                "label": {"format": {"name": "parquet"}, "data": ["y.parquet"]},
            }
        },
        "edge_data": {"n:r:n": {"w": {"format": {"name": "numpy"}, "data": ["w.npy"]}}},
    }
    (tmp_path / "metadata.json").write_text(json.dumps(content))
    graph = sar.ingest(tmp_path, tmp_path / "out")
    assert graph.name == "chunks"
    check_edges(graph, EDGES, N, w=WEIGHT)
    found = node_features(graph, "n")
    assert (found["feat"] == X).all() and (found["label"] == Y).all()
