"""Partition directories both ways, element by element: DGL loads what SAR writes, SAR loads what DGL writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import dgl
import numpy as np
import pytest
import torch

import sar
from sar.partitioning.dataset import Dataset
from tests.support import ROOT
from tests.support.command import run_sar

CORA = ROOT / "examples" / "data" / "cora.npz"


def ints(t: torch.Tensor) -> np.ndarray:
    return t.numpy().astype(np.int64)


def same(actual: Any, expected: Any, what: str) -> None:
    """Dtype, shape and every element; NaN equals NaN."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype}, expected {expected.dtype}"
    np.testing.assert_array_equal(actual, expected, err_msg=what, strict=True)


# ---- SAR writes, DGL loads ---------------------------------------------------


class Whole(NamedTuple):
    """The graph before it was cut."""

    src: np.ndarray
    dst: np.ndarray
    nodes: dict[str, np.ndarray]  # features, as partitions name them
    edges: dict[str, np.ndarray]
    num_nodes: int

    def cut(self, assignment: np.ndarray) -> Cut:
        """Nodes, and edges by the part of their destination, keep their order within a part."""
        node_order = np.argsort(assignment, kind="stable")
        new_id = np.empty(self.num_nodes, np.int64)
        new_id[node_order] = np.arange(self.num_nodes)
        return Cut(self, assignment, node_order, new_id, np.argsort(assignment[self.dst], kind="stable"))


class Cut(NamedTuple):
    """What every part must hold, worked out in numpy."""

    whole: Whole
    assignment: np.ndarray
    node_order: np.ndarray  # original id by new id
    new_id: np.ndarray  # new id by original id
    edge_order: np.ndarray

    def check(self, json_file: Path, part: int) -> None:
        whole, owner = self.whole, self.assignment
        local, node_feats, edge_feats, book, name, *_ = dgl.distributed.load_partition(str(json_file), part)
        assert name == json_file.stem and book.partid == part
        mine = self.node_order[owner[self.node_order] == part]
        held = self.edge_order[owner[whole.dst[self.edge_order]] == part]

        # nodes: own ones first, in order; then the halo
        ids, inner = ints(local.ndata[dgl.NID]), ints(local.ndata["inner_node"])
        same(ids[: len(mine)], self.new_id[mine], "ids of own nodes")
        same(inner, (np.arange(len(ids)) < len(mine)).astype(np.int64), "inner_node")
        same(ints(local.ndata["part_id"]), owner[self.node_order[ids]].astype(np.int64), "part_id")
        leaving = (owner[whole.src] == part) & (owner[whole.dst] != part)
        around = np.unique(np.concatenate([whole.src[held], whole.dst[leaving]]))
        same(np.sort(ids[len(mine) :]), np.sort(self.new_id[around[owner[around] != part]]), "ids of the halo")

        # edges: in-edges of own nodes, and those that leave them for the halo
        edge_ids, edge_inner = ints(local.edata[dgl.EID]), local.edata["inner_edge"].bool().numpy()
        original = self.edge_order[edge_ids]
        src, dst = (ids[ints(ends)] for ends in local.edges())
        same(src, self.new_id[whole.src[original]], "sources")
        same(dst, self.new_id[whole.dst[original]], "destinations")
        same(np.sort(original[edge_inner]), np.sort(held), "ids of own edges")
        same(np.sort(original[~edge_inner]), np.flatnonzero(leaving), "ids of leaving edges")

        # features
        assert set(node_feats) == {f"_N/{k}" for k in whole.nodes} | {"_N/orig_id"}
        same(node_feats["_N/orig_id"], mine, "orig_id of nodes")
        for key, feature in whole.nodes.items():
            same(node_feats[f"_N/{key}"], as_stored(feature)[mine], key)
        assert set(edge_feats) == {f"_N:_E:_N/{k}" for k in whole.edges} | {"_N:_E:_N/orig_id"}
        same(edge_feats["_N:_E:_N/orig_id"], held, "orig_id of edges")
        for key, feature in whole.edges.items():
            same(edge_feats[f"_N:_E:_N/{key}"], as_stored(feature)[held], key)

        # the partition book
        parts = book.num_partitions()
        counts = [np.bincount(owner[a], minlength=parts).tolist() for a in (slice(None), whole.dst)]
        assert [[int(m[k]) for m in book.metadata()] for k in ("num_nodes", "num_edges")] == counts
        everyone, every = torch.arange(whole.num_nodes), torch.arange(len(whole.src))
        same(ints(book.nid2partid(everyone)), owner[self.node_order].astype(np.int64), "owners of nodes")
        same(ints(book.eid2partid(every)), owner[whole.dst[self.edge_order]].astype(np.int64), "owners of edges")


def as_stored(feature: np.ndarray) -> np.ndarray:
    """DGL's files know no bool."""
    return feature.view(np.uint8) if feature.dtype == np.bool_ else feature


def test_dgl_loads_what_sar_partition_writes(tmp_path: Path) -> None:
    words = ["partition", CORA, "--parts", 3, "--out", tmp_path, "--method", "random", "--seed", 4]
    assert run_sar(*words).returncode == 0
    arrays = np.load(CORA)
    src, dst = arrays["edge_index"].astype(np.int64)
    masks = {k: arrays[k] for k in ("train_mask", "val_mask", "test_mask")}
    whole = Whole(src, dst, {"features": arrays["x"], "labels": arrays["y"], **masks}, {}, len(arrays["x"]))
    assignment = np.full(whole.num_nodes, -1, np.int32)
    for part in range(3):
        ids = dgl.distributed.load_partition(str(tmp_path / "cora.json"), part)[1]["_N/orig_id"].numpy()
        assert (assignment[ids] == -1).all()
        assignment[ids] = part
    assert np.bincount(assignment).tolist() == [903, 903, 902]
    for part in range(3):
        whole.cut(assignment).check(tmp_path / "cora.json", part)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("empty", [0, 2, 3, None])
def test_dgl_loads_features_of_all_kinds_and_an_empty_part(tmp_path: Path, empty: int | None, save: Any) -> None:
    """Edge features, several dtypes and shapes, parallel edges, self loops, isolated nodes, a part without nodes."""
    rng = np.random.default_rng(11)
    n, e, parts = 41, 170, 4
    src, dst = rng.integers(0, n - 5, (2, e))
    src[:9], dst[:9] = src[9:18], dst[9:18]
    src[20:25] = dst[20:25]
    x = rng.standard_normal((n, 3)).astype(np.float32)
    x[7, 1], x[8, 0] = np.nan, np.inf
    nodes = {
        "features": x,
        "labels": rng.integers(0, 4, n),
        "test_mask": rng.random(n) < 0.3,
        "half": rng.standard_normal((n, 2, 2)).astype(np.float16),
        "narrow": rng.integers(-9, 9, n).astype(np.int8),
    }
    edges = {
        "w": rng.random(e),
        "kind": rng.integers(0, 5, (e, 1)).astype(np.int32),
        "wide": rng.standard_normal((e, 2, 3)).astype(np.float32),
        "kept": rng.random(e) < 0.5,
    }
    arrays = {**nodes, **edges, "x": nodes["features"], "y": nodes["labels"]}
    del arrays["features"], arrays["labels"]
    save(tmp_path / "little.npz", edge_index=np.stack([src, dst]), **arrays)
    assignment = rng.choice([p for p in range(parts) if p != empty], n).astype(np.int32)
    with Dataset(str(tmp_path / "little.npz")) as dataset:
        dataset.write_parts(assignment, parts, str(tmp_path / "out"), {"name": "little", "method": "random"})
    for part in range(parts):
        Whole(src, dst, nodes, edges, n).cut(assignment).check(tmp_path / "out" / "little.json", part)


# ---- DGL writes, SAR loads ---------------------------------------------------

PARTS = 3


@pytest.fixture(scope="module", params=["random", "metis"])
def of_dgl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    where = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(5)
    src, dst = (torch.from_numpy(rng.integers(0, 90, 600)) for _ in range(2))
    graph = dgl.graph((src, dst), num_nodes=90)
    graph.ndata["features"] = torch.from_numpy(rng.standard_normal((90, 6)).astype("float32"))
    graph.ndata["labels"] = torch.arange(90) % 5
    graph.ndata["train_mask"] = torch.arange(90) % 3 == 0
    graph.ndata["half"] = torch.from_numpy(rng.standard_normal((90, 2, 2)).astype("float16"))
    graph.edata["w"] = torch.from_numpy(rng.random(600))
    graph.edata["heads"] = torch.from_numpy(rng.standard_normal((600, 4, 1)).astype("float32"))
    graph.edata["kept"] = torch.arange(600) % 2 == 0
    dgl.distributed.partition_graph(graph, "whole", PARTS, str(where), part_method=request.param)
    return str(where / "whole.json")


@pytest.mark.parametrize("part", range(PARTS))
def test_sar_loads_what_dgl_writes(of_dgl: str, part: int) -> None:
    data = sar.load_dgl_partition_data(of_dgl, part, torch.device("cpu"))
    local, node_feats, edge_feats, book, *_ = dgl.distributed.load_partition(of_dgl, part)
    ends = np.cumsum([m["num_nodes"] for m in book.metadata()]).tolist()
    assert data.node_ranges == list(zip([0, *ends[:-1]], ends))
    assert set(data.node_features) == set(node_feats) | {dgl.NTYPE}
    for key, feature in node_feats.items():
        same(data.node_features[key], feature, key)
    assert set(data.edge_features) == set(edge_feats)
    for key, feature in edge_feats.items():
        same(data.edge_features[key], feature, key)

    # the in-edges of own nodes by ascending id, which is the order of edge features
    inner = local.edata["inner_edge"].bool()
    ids = local.edata[dgl.EID][inner]
    order = torch.argsort(ids)
    src, dst = (local.ndata[dgl.NID][e[inner].long()][order] for e in local.edges())
    assert data.stored is not None
    for found, expected, what in zip(data.stored.edges(0), (src, dst, ids[order]), ("src", "dst", "id")):
        same(found, expected.long(), what)
    same(ids[order], book.partid2eids(part), "ids of own edges")

    # the same edges by the part of their source
    owner = book.nid2partid(src)
    assert len(data.all_shard_edges) == PARTS
    for q, shard in enumerate(data.all_shard_edges):
        for found, expected, what in zip(shard.edges, (src, dst), ("src", "dst")):
            same(found, expected[owner == q].long(), f"{what} of shard {q}")
        assert set(shard.edge_features) == set(edge_feats) | {dgl.ETYPE}
        for key, feature in edge_feats.items():
            same(shard.edge_features[key], feature[owner == q], f"{key} of shard {q}")
