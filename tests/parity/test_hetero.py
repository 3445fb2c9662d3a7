"""Graphs of several node types and relations, full and as blocks, from files and from memory, against DGL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import sar
from sar.partitioning.dataset import Dataset
from tests.parity import cases_blocks
from tests.parity.cases_blocks import RGCN
from tests.support import hetero
from tests.support.command import run_sar
from tests.support.graphs import close
from tests.support.pool import Pool
from tests.support.sessions import Workers

SIZES = [6, 5, 4]


def dgl_graph(ends: Any) -> Any:
    graph = dgl.heterograph(
        {t: (torch.from_numpy(s), torch.from_numpy(d)) for t, (s, d) in ends.items()}, num_nodes_dict=hetero.KINDS
    )
    graph.edges["cites"].data["w"] = torch.from_numpy(np.random.default_rng(9).random((len(ends[CITES][0]), 1)))
    return graph


CITES = ("paper", "cites", "paper")


class Oracle:
    """DGL on the whole graph; the gradient of the output is 0 but at seeds."""

    def __init__(self, graph: Any, keep: bool, seeds: dict[str, np.ndarray] | None) -> None:
        torch.manual_seed(0)
        model = RGCN(list(hetero.KINDS), hetero.TRIPLES, SIZES, keep).double()
        self.x = hetero.features(1)
        fed = {k: torch.from_numpy(v).requires_grad_(k != "field") for k, v in self.x.items()}
        w = graph.edges["cites"].data["w"].clone().requires_grad_()
        out = model([graph] * 2, fed, [w] * 2)
        self.grad = hetero.features(2, SIZES[-1])
        if seeds is not None:
            for kind, grad in self.grad.items():
                grad[np.setdiff1d(np.arange(len(grad)), seeds[kind])] = 0
        sum((out[k] * torch.from_numpy(self.grad[k])).sum() for k in out).backward()
        self.edges = graph.num_edges()
        self.out = {k: v.detach().numpy() for k, v in out.items()}
        self.gradient = {k: v.grad for k, v in fed.items()}
        assert w.grad is not None
        self.loaded, self.w = w.detach().numpy(), w.grad.numpy()
        self.state = {k: v.numpy() for k, v in model.state_dict().items()}
        self.parameters = {k: p.grad for k, p in model.named_parameters()}

    def compare(self, results: list[Any], nodes: list[dict[str, np.ndarray]], edges: list[np.ndarray]) -> None:
        """``nodes[rank]``: original ids of own nodes; ``edges[rank]``: original ids of own edges of cites."""
        for rank, result in enumerate(results):
            for kind, own in nodes[rank].items():
                rows = own[result["rows"][kind]]
                if kind in result["out"]:
                    close(result["out"][kind], self.out[kind][rows], f"output of {kind}, rank {rank}")
                expected = self.gradient[kind]
                if expected is None:
                    assert result["x"][kind] is None
                    continue
                found = result["x"][kind]
                wanted = expected.numpy()[own]
                close(np.zeros_like(wanted) if found is None else found, wanted, f"gradient of {kind}, rank {rank}")
            if result["w"] is not None:
                close(result["loaded"], self.loaded[edges[rank]], f"weights of rank {rank}")
                close(result["w"], self.w[edges[rank]], f"gradient of weights, rank {rank}")
            for key, grad in self.parameters.items():
                found = result["parameters"][key]
                if grad is not None:
                    close(np.zeros_like(grad) if found is None else found, grad.numpy(), key)
                else:
                    assert found is None or not found.any()
            assert result["class"] == "HeteroGraphShardManager"
            assert result["global"] == [sum(hetero.KINDS.values()), self.edges]


def choose(share: float, without: str | None = None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {
        kind: np.flatnonzero(rng.random(n) < share) if kind != without else np.zeros(0, np.int64)
        for kind, n in hetero.KINDS.items()
    }


def by_hand(
    few: Workers, seeds: dict[str, np.ndarray] | None = None, keep: bool = True, one_shot: bool = False
) -> None:
    ends = hetero.edges()
    oracle = Oracle(dgl_graph(ends), keep, seeds)
    cut = hetero.Cut(few.world)
    arguments, nodes, edges = [], [], []
    for rank in range(few.world):
        own = {kind: cut.rows(kind, rank) for kind in hetero.KINDS}
        mine = cut.held(CITES, ends, rank)
        nodes.append(own)
        edges.append(mine)
        arguments.append(
            {
                "source": {"part": cut.part(rank, ends), "features": None},
                "x": {k: oracle.x[k][rows] for k, rows in own.items()},
                "grad": {k: oracle.grad[k][rows] for k, rows in own.items()},
                "seeds": seeds and {k: np.flatnonzero(np.isin(rows, seeds[k])) for k, rows in own.items()},
            }
        )
        # edges reach the graph shard by shard: by the owner of the source, in each in the order given
        part = arguments[-1]["source"]["part"]
        column = np.zeros((len(part["src"]), 1))
        column[part["etype"] == hetero.TRIPLES.index(CITES)] = oracle.loaded[mine]
        arguments[-1]["source"]["features"] = {"w": column}
        owner = cut.owner["paper"][ends[CITES][0][mine]]
        edges[-1] = mine[np.argsort(owner, kind="stable")]
    common = {"sizes": SIZES, "state": oracle.state, "keep": keep, "one_shot": one_shot}
    oracle.compare(few.run(cases_blocks.rgcn, arguments, **common), nodes, edges)


def test_full_graph_from_memory(few: Workers) -> None:
    by_hand(few)


@pytest.mark.parametrize("keep", [True, False])
def test_blocks_from_memory(few: Workers, keep: bool) -> None:
    by_hand(few, choose(0.3), keep)


def test_seeds_of_one_type(few: Workers) -> None:
    seeds = {kind: np.zeros(0, np.int64) for kind in hetero.KINDS}
    by_hand(few, {**seeds, "paper": np.arange(0, 40, 3)})


def cut_by_dgl(graph: Any, parts: int, where: Path) -> Any:
    """DGL draws the parts, and fails where a part has no node of some type: then it draws again."""
    for seed in range(50):
        np.random.seed(seed)
        try:
            return dgl.distributed.partition_graph(
                graph, "typed", parts, str(where), part_method="random", return_mapping=True
            )
        except IndexError:
            continue
    raise AssertionError("no parts with nodes of all types")


@pytest.mark.parametrize("blocks", [False, True])
def test_one_shot(few: Workers, blocks: bool) -> None:
    by_hand(few, choose(0.3) if blocks else None, one_shot=True)


def from_files(few: Workers, where: Path, seeds: dict[str, np.ndarray] | None = None) -> None:
    ends = hetero.edges(few=False)
    graph = dgl_graph(ends)
    oracle = Oracle(graph, True, seeds)
    nodes, edges = cut_by_dgl(graph, few.world, where)
    arguments, held, cites = [], [], []
    for rank in range(few.world):
        book = dgl.distributed.load_partition_book(str(where / "typed.json"), rank)[0]
        own = {kind: nodes[kind][book.partid2nids(rank, kind)].numpy() for kind in hetero.KINDS}
        held.append(own)
        cites.append(edges[CITES][book.partid2eids(rank, CITES)].numpy())
        arguments.append(
            {
                "x": {k: oracle.x[k][rows] for k, rows in own.items()},
                "grad": {k: oracle.grad[k][rows] for k, rows in own.items()},
                "seeds": seeds and {k: np.flatnonzero(np.isin(rows, seeds[k])) for k, rows in own.items()},
            }
        )
    source = {"json": str(where / "typed.json")}
    results = few.run(cases_blocks.rgcn, arguments, source=source, sizes=SIZES, state=oracle.state)
    oracle.compare(results, held, cites)


def test_full_graph_from_files_of_dgl(few: Workers, tmp_path: Path) -> None:
    from_files(few, tmp_path)


def test_blocks_from_files_of_dgl(few: Workers, tmp_path: Path) -> None:
    from_files(few, tmp_path, choose(0.25, without="venue"))


# ---- parts that SAR writes -------------------------------------------------------


def write(where: Path, world: int) -> tuple[Any, hetero.Cut, Any]:
    """The graph cut by ``sar partition``'s own writer, some parts without nodes of a type."""
    ends, cut = hetero.edges(), hetero.Cut(world)
    graph = dgl_graph(ends)
    w = graph.edges["cites"].data["w"].numpy()
    hetero.save(where / "typed.npz", ends, hetero.features(1), w)
    with Dataset(str(where / "typed.npz")) as dataset:
        assert dataset.info["node_types"] == [{"name": k, "rows": n} for k, n in hetero.KINDS.items()]
        assert [t["name"] for t in dataset.info["edge_types"]] == [":".join(t) for t in hetero.TRIPLES]
        owner = np.concatenate([cut.owner[kind] for kind in hetero.KINDS]).astype(np.int32)
        dataset.write_parts(owner, world, str(where), {"name": "typed", "method": "random"})
    return ends, cut, graph


@pytest.mark.parametrize("seeds", [False, True])
def test_from_files_of_ours(few: Workers, tmp_path: Path, seeds: bool) -> None:
    ends, cut, graph = write(tmp_path, few.world)
    chosen = choose(0.3) if seeds else None
    oracle = Oracle(graph, True, chosen)
    nodes = [{kind: cut.rows(kind, rank) for kind in hetero.KINDS} for rank in range(few.world)]
    arguments = [
        {
            "x": {k: oracle.x[k][rows] for k, rows in own.items()},
            "grad": {k: oracle.grad[k][rows] for k, rows in own.items()},
            "seeds": chosen and {k: np.flatnonzero(np.isin(rows, chosen[k])) for k, rows in own.items()},
        }
        for own in nodes
    ]
    source = {"json": str(tmp_path / "typed.json")}
    results = few.run(cases_blocks.rgcn, arguments, source=source, sizes=SIZES, state=oracle.state)
    oracle.compare(results, nodes, [cut.held(CITES, ends, rank) for rank in range(few.world)])


@pytest.mark.parametrize("world", [1, 3])
def test_dgl_loads_ours(tmp_path: Path, world: int) -> None:
    ends, cut, graph = write(tmp_path, world)
    json_file = str(tmp_path / "typed.json")
    seen = {t: np.zeros(len(e[0]), np.int64) for t, e in ends.items()}
    for part in range(world):
        local, node_feats, edge_feats, book, _, ntypes, etypes = dgl.distributed.load_partition(json_file, part)
        assert list(ntypes) == list(hetero.KINDS) and list(etypes) == hetero.TRIPLES
        assert book.canonical_etypes == hetero.TRIPLES and book.partid == part
        ids = local.ndata[dgl.NID]
        kind_of, of_type = book.map_to_per_ntype(ids)
        assert torch.equal(kind_of.long(), local.ndata[dgl.NTYPE].long())
        for n, kind in enumerate(hetero.KINDS):
            own = cut.rows(kind, part)
            inner = (local.ndata["inner_node"] == 1) & (kind_of == n)
            assert int(inner.sum()) == len(own) == len(book.partid2nids(part, kind))
            assert np.array_equal(node_feats[f"{kind}/orig_id"].numpy(), own)
            if kind != "field":
                assert np.array_equal(node_feats[f"{kind}/features"].numpy(), hetero.features(1)[kind][own])
            else:
                assert "field/features" not in node_feats
        relation, _ = book.map_to_per_etype(local.edata[dgl.EID])
        assert torch.equal(relation.long(), local.edata[dgl.ETYPE].long())
        src, dst = local.edges()
        for n, triple in enumerate(hetero.TRIPLES):
            mine = (local.edata["inner_edge"] == 1) & (relation == n)
            order = torch.argsort(local.edata[dgl.EID][mine])
            held = cut.held(triple, ends, part)
            name = ":".join(triple)
            assert np.array_equal(edge_feats[f"{name}/orig_id"].numpy(), held)
            for side, column, kind in ((0, src, triple[0]), (1, dst, triple[2])):
                original = cut.nodes[kind][of_type[column[mine][order]].numpy()]
                assert np.array_equal(original, ends[triple][side][held]), name
            seen[triple][held] += 1
        w = graph.edges["cites"].data["w"].numpy()
        assert np.array_equal(edge_feats["paper:cites:paper/w"].numpy(), w[cut.held(CITES, ends, part)])
    assert all((s == 1).all() for s in seen.values())


def test_the_command(tmp_path: Path) -> None:
    hetero.save(tmp_path / "typed.npz", hetero.edges(), hetero.features(1), np.ones((150, 1)))
    words = ["partition", tmp_path / "typed.npz", "--parts", 2, "--out", tmp_path / "out", "--method", "random"]
    assert run_sar(*words).returncode == 0
    book = dgl.distributed.load_partition_book(str(tmp_path / "out" / "typed.json"), 1)[0]
    assert {kind: book._num_nodes(kind) for kind in book.ntypes} == hetero.KINDS
    loops = run_sar(*words, "--self-loops")
    assert loops.returncode == 2 and "graphs of one type" in loops.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"author:writes/edge_index": np.zeros((2, 1), np.int64)}, "source:relation:destination/edge_index"),
        ({"a:b:c/edge_index": np.zeros((3, 1), np.int64)}, "shape"),
        ({"a:b:c/edge_index": np.zeros((2, 1))}, "whole numbers"),
        ({"paper/x": np.ones((3, 1)), "paper/y": np.ones(4)}, "4 rows|3 rows"),
        ({"paper/num_nodes": np.array(1), "a:b:paper/edge_index": np.ones((2, 1), np.int64)}, "edge 0 between"),
        ({"paper/orig_id": np.ones(2), "paper/num_nodes": np.array(2)}, "orig_id"),
    ],
)
def test_bad_files(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    arrays = {"paper:cites:paper/edge_index": np.zeros((2, 2), np.int64)} | change
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(sar.FormatError, match=words), Dataset(str(tmp_path / "bad.npz")) as dataset:
        dataset.write_parts(
            np.zeros(dataset.num_nodes, np.int32), 1, str(tmp_path), {"name": "bad", "method": "random"}
        )


def test_eight_workers(pool: Pool) -> None:
    by_hand(Workers(pool, 8, "shm"), choose(0.3))
