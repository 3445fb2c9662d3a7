"""Partitions that DGL writes: what is loaded, and what a graph built from them computes."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import sar
from sar.data.partition_book import RangePartitionBook
from sar.data.shard_edges import relation_edges, triples_of
from tests.data import cases_files, cases_mapped
from tests.parity import cases_blocks
from tests.support.graphs import close
from tests.support.sessions import Workers

PARTS = 2


@pytest.fixture(scope="module")
def homogeneous(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A graph in two parts, features of several dtypes, edge features, and the maps back."""
    where = tmp_path_factory.mktemp("homogeneous")
    rng = np.random.default_rng(1)
    src, dst = torch.from_numpy(rng.integers(0, 50, (2, 300)))
    graph = dgl.graph((src, dst), num_nodes=50)
    graph.ndata["features"] = torch.from_numpy(rng.standard_normal((50, 5)).astype("float32"))
    graph.ndata["labels"] = torch.arange(50) % 7
    graph.ndata["train_mask"] = torch.arange(50) % 2 == 0
    graph.edata["w"] = torch.from_numpy(rng.random((300, 1)).astype("float32"))
    nodes, edges = dgl.distributed.partition_graph(
        graph, "small", PARTS, str(where), part_method="random", return_mapping=True
    )
    return {"json": str(where / "small.json"), "graph": graph, "nodes": nodes, "edges": edges}


@pytest.fixture(scope="module")
def heterogeneous(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two node types and three relations."""
    where = tmp_path_factory.mktemp("heterogeneous")
    rng = np.random.default_rng(2)

    def pairs(n: int, a: int, b: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(rng.integers(0, a, n)), torch.from_numpy(rng.integers(0, b, n))

    graph = dgl.heterograph(
        {
            ("author", "writes", "paper"): pairs(80, 20, 30),
            ("paper", "cites", "paper"): pairs(90, 30, 30),
            ("paper", "reviewed", "author"): pairs(12, 30, 20),
        },
        num_nodes_dict={"author": 20, "paper": 30},
    )
    graph.nodes["paper"].data["features"] = torch.from_numpy(rng.standard_normal((30, 4)))
    graph.nodes["author"].data["age"] = torch.arange(20)
    graph.edges["cites"].data["w"] = torch.from_numpy(rng.random(90))
    nodes, edges = dgl.distributed.partition_graph(
        graph, "typed", PARTS, str(where), part_method="random", return_mapping=True
    )
    return {"json": str(where / "typed.json"), "graph": graph, "nodes": nodes, "edges": edges}


@pytest.mark.parametrize("part", range(PARTS))
def test_against_dgl(homogeneous: dict[str, Any], part: int) -> None:
    data = sar.load_dgl_partition_data(homogeneous["json"], part, torch.device("cpu"))
    local, node_feats, edge_feats, book, *_ = dgl.distributed.load_partition(homogeneous["json"], part)
    inner = local.ndata["inner_node"].bool()
    assert data.node_ranges == [(int(a), int(b)) for a, b in _ranges(book)]
    assert set(data.node_features) == set(node_feats) | {dgl.NTYPE}
    for key, value in node_feats.items():
        assert data.node_features[key].dtype == value.dtype and torch.equal(data.node_features[key], value), key
    kinds = data.node_features[dgl.NTYPE]
    assert kinds.dtype == torch.int32 and kinds.tolist() == [0] * int(inner.sum())
    assert data.node_type_names == ["_N"] and data.edge_type_names == [("_N", "_E", "_N")]
    # edges, all of them, with their features, by the partition of the source
    src, dst = local.edges()
    wanted = set(
        zip(
            local.ndata[dgl.NID][src][local.edata["inner_edge"].bool()].tolist(),
            local.ndata[dgl.NID][dst][local.edata["inner_edge"].bool()].tolist(),
            edge_feats["_N:_E:_N/w"].view(-1).tolist(),
        )
    )
    found = set()
    assert len(data.all_shard_edges) == PARTS
    for q, shard in enumerate(data.all_shard_edges):
        source, target = shard.edges
        assert bool(((source >= data.node_ranges[q][0]) & (source < data.node_ranges[q][1])).all())
        found |= set(zip(source.tolist(), target.tolist(), shard.edge_features["_N:_E:_N/w"].view(-1).tolist()))
        assert shard.edge_features[dgl.ETYPE].tolist() == [0] * len(source)
    assert found == wanted
    assert type(data.partition_book) is type(book)
    assert len(list(data)) == 6 and list(data)[1] is data.node_ranges


def _ranges(book: Any) -> list[tuple[int, int]]:
    ends = np.cumsum([m["num_nodes"] for m in book.metadata()]).tolist()
    return list(zip([0, *ends[:-1]], ends))


@pytest.mark.parametrize("which", ["homogeneous", "heterogeneous"])
def test_our_partition_book_answers_as_dgls(which: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(which)["json"]
    theirs, *_ = dgl.distributed.load_partition_book(path, 1)
    stored = sar.load_dgl_partition_data(path, 1).stored
    assert stored is not None
    ours = RangePartitionBook(1, stored.node_ranges, stored.edge_ranges)
    assert ours.partid == theirs.partid == 1 and ours.num_partitions() == theirs.num_partitions()
    assert ours.ntypes == list(theirs.ntypes) and ours.canonical_etypes == list(theirs.canonical_etypes)
    assert ours.etypes == list(theirs.etypes) and ours._canonical_etypes == list(theirs.canonical_etypes)
    assert ours.is_homogeneous == theirs.is_homogeneous == (which == "homogeneous")
    assert [{k: int(v) for k, v in m.items()} for m in theirs.metadata()] == ours.metadata()
    everything = torch.arange(sum(m["num_nodes"] for m in ours.metadata()))
    for a, b in zip(ours.map_to_per_ntype(everything), theirs.map_to_per_ntype(everything)):
        assert torch.equal(a, b.long())
    everything = torch.arange(sum(m["num_edges"] for m in ours.metadata()))
    for a, b in zip(ours.map_to_per_etype(everything), theirs.map_to_per_etype(everything)):
        assert torch.equal(a, b.long())
    for kind in ours.ntypes:
        ids = torch.arange(ours._num_nodes(kind))
        assert len(ids) == theirs._num_nodes(kind)
        assert torch.equal(ours.nid2partid(ids, kind), theirs.nid2partid(ids, kind).long())
        assert torch.equal(ours.map_to_homo_nid(ids, kind), theirs.map_to_homo_nid(ids, kind))
        for part in range(PARTS):
            mine = ours.partid2nids(part, kind)
            assert torch.equal(mine, theirs.partid2nids(part, kind))
            if part == 1:  # DGL answers for the own partition only
                assert torch.equal(ours.nid2localnid(mine, part, kind), theirs.nid2localnid(mine, part, kind))
    for triple in ours.canonical_etypes:
        assert ours.to_canonical_etype(triple[1]) == theirs.to_canonical_etype(triple[1]) == triple
        ids = torch.arange(ours._num_edges(triple))
        assert torch.equal(ours.eid2partid(ids, triple), theirs.eid2partid(ids, triple).long())
        for part in range(PARTS):
            assert torch.equal(ours.partid2eids(part, triple), theirs.partid2eids(part, triple))
    with pytest.raises(KeyError, match="'ghost' is unknown; there are"):
        ours.partid2nids(0, "ghost")


def test_a_graph_from_files(two: Workers, homogeneous: dict[str, Any]) -> None:
    """Weighted aggregation over two workers from DGL's files equals DGL on the whole graph."""
    graph, nodes, edges = homogeneous["graph"], homogeneous["nodes"], homogeneous["edges"]
    x, w = graph.ndata["features"].clone().requires_grad_(), graph.edata["w"].clone().requires_grad_()
    with graph.local_scope():
        graph.ndata["h"], graph.edata["v"] = x, w
        graph.update_all(dgl.function.u_mul_e("h", "v", "m"), dgl.function.mean("m", "out"))
        out = graph.ndata["out"]
    out.sum().backward()
    assert x.grad is not None and w.grad is not None
    results = two.run(cases_files.from_files, json_file=homogeneous["json"], feature="features")
    for name, expected, order in (("out", out.detach(), nodes), ("x", x.grad, nodes), ("w", w.grad, edges)):
        found = np.concatenate([r[name] for r in results])
        close(found, expected[order].numpy(), name)
    for own, kind in ((0, 1), (2, 3)):
        assert sum(r["counts"][own] for r in results) == results[0]["counts"][kind] == (50, 300)[own // 2]
    assert [r["counts"][4] for r in results] == ["GraphShardManager"] * PARTS
    degrees = np.concatenate([r["out_degrees"] for r in results])
    assert np.array_equal(degrees, graph.out_degrees()[nodes].numpy())


def test_a_heterograph_from_files(two: Workers, heterogeneous: dict[str, Any]) -> None:
    graph, nodes = heterogeneous["graph"], heterogeneous["nodes"]
    x = graph.nodes["paper"].data["features"]
    graph["cites"].edata["v"] = graph.edges["cites"].data["w"].view(-1, 1)
    cites = graph["cites"]
    cites.srcdata["h"] = x
    cites.update_all(dgl.function.u_mul_e("h", "v", "m"), dgl.function.sum("m", "out"))
    expected = cites.dstdata["out"][nodes["paper"]].numpy()
    results = two.run(cases_files.hetero_from_files, json_file=heterogeneous["json"])
    close(np.concatenate([r["cites"] for r in results]), expected, "cites")
    writes = graph["writes"].in_degrees()[nodes["paper"]].double().numpy()
    close(np.concatenate([r["writes"] for r in results])[:, 0], writes, "writes")
    assert sum(r["reviewed"] for r in results) == 12
    for result in results:
        assert result["class"] == "HeteroGraphShardManager"
        assert result["types"] == [graph.ntypes, graph.canonical_etypes]
        assert result["global"] == [50, 30, 182, 90]
        assert "one relation at a time: give etype" in result["unnamed"]
        assert sorted(result["columns"]) == ["author", "paper"]


def test_mapped_features_of_several_types(two: Workers, heterogeneous: dict[str, Any]) -> None:
    """Files that DGL wrote: the same bits where both workers map features, where one does, and where none does."""
    json_file = heterogeneous["json"]
    none, one, both = (
        two.run(cases_mapped.hetero, json_file=json_file, mapped=choice)
        for choice in ([False, False], [True, False], [True, True])
    )
    assert none == one == both and none[0]


@pytest.mark.parametrize("part", range(PARTS))
def test_typed_features(heterogeneous: dict[str, Any], part: int) -> None:
    data = sar.load_dgl_partition_data(heterogeneous["json"], part)
    kinds = data.node_features[dgl.NTYPE]
    names = data.node_type_names
    assert names == heterogeneous["graph"].ntypes
    assert data.edge_type_names == heterogeneous["graph"].canonical_etypes
    ages = sar.suffix_key_lookup(data.node_features, "age", True, names)
    assert len(ages) == len(kinds) and bool((ages[kinds == names.index("paper")] == 0).all())
    edges = sum(len(s.edges[0]) for s in data.all_shard_edges)
    assert edges == sum(int((s.edge_features[dgl.ETYPE] >= 0).sum()) for s in data.all_shard_edges)
    assert len(data.edge_features["paper:cites:paper/w"]) == sum(
        int((s.edge_features[dgl.ETYPE] == data.edge_type_names.index(("paper", "cites", "paper"))).sum())
        for s in data.all_shard_edges
    )


def test_edges_are_not_read_before_they_are_asked_for(homogeneous: dict[str, Any]) -> None:
    data = sar.load_dgl_partition_data(homogeneous["json"], 0)
    assert callable(data._shard_edges)
    assert data.all_shard_edges is data.all_shard_edges
    assert not callable(data._shard_edges)


def test_a_graph_outlives_its_partition(two: Workers, homogeneous: dict[str, Any]) -> None:
    gc.collect()
    book, *_ = dgl.distributed.load_partition_book(homogeneous["json"], 0)
    for rank, result in enumerate(two.run(cases_files.files_are_closed, json_file=homogeneous["json"])):
        assert result == [True, len(book.partid2nids(rank))]


def test_bad_files(homogeneous: dict[str, Any], two: Workers, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nosuch.json"):
        sar.load_dgl_partition_data(str(tmp_path / "nosuch.json"), 0)
    with pytest.raises(ValueError, match="7"):
        sar.load_dgl_partition_data(homogeneous["json"], 7)
    for name in ("graph.dgl", "node_feat.dgl"):
        copy = tmp_path / name.partition(".")[0]
        _copy(Path(homogeneous["json"]), copy, {f"part0/{name}": lambda raw: raw[: len(raw) // 2]})
        with pytest.raises(sar.FormatError) as caught:
            len(sar.load_dgl_partition_data(str(copy / "small.json"), 0).all_shard_edges)
        assert name in str(caught.value) and caught.value.file.endswith(name) and caught.value.offset >= 0
    wrong = tmp_path / "magic"
    _copy(Path(homogeneous["json"]), wrong, {"part0/node_feat.dgl": lambda raw: b"GARBAGE!" + raw[8:]})
    with pytest.raises(sar.FormatError, match="magic|begin"):
        sar.load_dgl_partition_data(str(wrong / "small.json"), 0)
    for rank, message in enumerate(two.run(cases_files.wrong_partition, json_file=homogeneous["json"])):
        assert f"partition {1 - rank} was loaded by the worker of rank {rank}" in message
    dgl.distributed.partition_graph(homogeneous["graph"], "whole", 3, str(tmp_path / "whole"), part_method="random")
    for message in two.run(cases_files.load_message, json_file=str(tmp_path / "whole" / "whole.json")):
        assert "3 partitions, but 2 workers" in message and "partition the graph into 2" in message


def _copy(json_file: Path, target: Path, changes: dict[str, Any]) -> None:
    for file in sorted(json_file.parent.rglob("*")):
        relative = str(file.relative_to(json_file.parent))
        if file.is_file():
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            (target / relative).write_bytes(changes.get(relative, lambda raw: raw)(file.read_bytes()))


def test_blocks_out_of_one_graph(two: Workers, homogeneous: dict[str, Any]) -> None:
    for result in two.run(cases_blocks.blocks_again, json_file=homogeneous["json"]):
        assert result["same"]
        assert result["edges"][0] == result["edges"][1] and result["sums"][0] == result["sums"][1]
        assert 0 < result["after"] < result["held"]  # blocks stay, the full graph goes


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("changed", [False, True])
def test_partition_data_of_what_dgl_loaded(homogeneous: dict[str, Any], part: int, changed: bool) -> None:
    """Edges and their features go together, also in a record of which other fields were replaced."""
    local, node_feats, edge_feats, book, _, ntypes, etypes = dgl.distributed.load_partition(homogeneous["json"], part)
    given = (local, part, node_feats, edge_feats, book, ntypes, etypes, torch.device("cpu"))
    data = sar.data_loading.create_partition_data(*given)
    if changed:
        data = data._replace(node_features={dgl.NTYPE: data.node_features[dgl.NTYPE]})
    ((src, dst),) = relation_edges(data, triples_of(data))
    weights = data.edge_readers()["_N:_E:_N/w"]().view(-1)
    whole = homogeneous["graph"]
    start, end = whole.edges()
    old = homogeneous["nodes"]
    expected = sorted(zip(start.tolist(), end.tolist(), whole.edata["w"].view(-1).tolist()))
    found = sorted(zip(old[src].tolist(), old[dst].tolist(), weights.tolist()))
    low, high = data.node_ranges[part]
    mine = set(old[low:high].tolist())
    assert found == [edge for edge in expected if edge[1] in mine]
