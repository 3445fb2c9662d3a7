"""``clone``, ``remove_edges``, ``send_and_recv``, filters, reversed graphs and transforms against DGL's whole graph."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import cases_graph_methods as cases, cases_transforms
from tests.support import hetero
from tests.support.graphs import Graph, close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers


@pytest.mark.parametrize("name", list(cases.OPERATIONS))
def test_operation(few: Workers, name: str) -> None:
    """Values and all gradients, element by element, also with a worker that owns no node."""
    for kind in ("random", "empty_worker")[: few.world]:
        graph = make(kind, few.world, seed=70)
        if name == "reversed_egat":  # which DGL refuses where a node has no in-edge
            loops = np.arange(graph.num_nodes)
            graph = graph._replace(src=np.append(graph.src, loops), dst=np.append(graph.dst, loops))
        rng = np.random.default_rng(71)
        x = rng.standard_normal((graph.num_nodes, cases.WIDTH))
        w = rng.standard_normal((len(graph.src), 1))
        mask = rng.random(len(graph.src)) < 0.4
        if name in ("transformed", "operators_in_single_precision"):  # DGL divides by single precision in the first
            x, w = x.astype("float32"), w.astype("float32")
        expected = cases.outcome(graph.of_dgl(), name, x, w, mask)
        results = few.run(cases.run, graph.shares(x=x, edges={"w": w, "mask": mask}), name=name)
        for rank, found in enumerate(results):
            rows, edges = graph.rows(rank), graph.edges(rank)
            assert set(found["results"]) == set(expected["results"])
            for key, value in expected["results"].items():
                assert len(value) in (graph.num_nodes, len(graph.src))
                mine = value[rows] if len(value) == graph.num_nodes else value[edges]
                close(found["results"][key], mine, f"{name}: {key} of rank {rank}", 100)
            for key, own in (("x", rows), ("w", edges)):
                if expected["grads"][key] is not None and len(expected["grads"][key][own]):
                    got = found["grads"][key]
                    close(got, expected["grads"][key][own], f"{name}: gradient of {key}, rank {rank}", 100)
        for key in set(expected["grads"]) - {"x", "w"}:
            total = sum(r["grads"][key] for r in results)
            close(total, expected["grads"][key], f"{name}: gradient of {key}", 1000)


# ---- transforms --------------------------------------------------------------


def cut(graph: Graph, world: int) -> Graph:
    """The same graph for another number of workers."""
    return graph._replace(start=np.linspace(0, graph.num_nodes, world + 1).astype(np.int64))


def test_drop_edge(pool: Pool) -> None:
    """One graph, cut for 1, 2 and 4 workers: the same edges stay, by the original ids of edges, with the probability
    asked for; a layer on what is left, with attention dropout, gives DGL's numbers."""
    graph = make("random", 1, seed=72)
    keys = 7 * np.arange(len(graph.src), dtype=np.int64) + 2
    x = np.random.default_rng(73).standard_normal((graph.num_nodes, 4))
    stayed, masks, outs, grads = [], [], [], []
    for world in (1, 2, 4):
        split = cut(graph, world)
        given = split.shares(x=x, edges={"keys": keys})
        results = Workers(pool, world, "shm").run(cases_transforms.drop_edges, given, seed=74)
        left = {
            name: np.concatenate([split.edges(r)[found[name]] for r, found in enumerate(results)])
            for name in ("first", "again", "second")
        }
        order = np.argsort(left["first"])
        stayed.append(left["first"][order])
        np.testing.assert_array_equal(left["first"], left["again"])
        assert 0.5 < len(left["first"]) / len(keys) < 0.7 and 0.5 < len(left["second"]) / len(keys) < 0.7
        both = len(np.intersect1d(left["first"], left["second"]))
        assert 0.26 < both / len(keys) < 0.46  # 0.36: draws of another seed are other draws
        masks.append(np.concatenate([found["mask"] for found in results])[order])
        outs.append(np.concatenate([found["out"] for found in results]))
        grads.append(np.concatenate([found["x"] for found in results]))
    for other in (1, 2):
        np.testing.assert_array_equal(stayed[other], stayed[0])
        np.testing.assert_array_equal(masks[other], masks[0])
        close(outs[other], outs[0], "output", 100)
        close(grads[other], grads[0], "gradient", 100)


def test_drop_edge_with_self_loops(pool: Pool) -> None:
    """The same edges and self loops stay, however the graph is cut."""
    graph = make("random", 1, seed=72)
    edges, nodes = len(graph.src), graph.num_nodes
    keys = 7 * np.arange(edges, dtype=np.int64) + 2
    stayed = []
    for world in (1, 2, 4):
        split = cut(graph, world)
        names = [np.concatenate([split.edges(r), edges + np.arange(nodes)[split.rows(r)]]) for r in range(world)]
        given = split.shares(edges={"keys": keys})
        results = Workers(pool, world, "shm").run(cases_transforms.drop_edges_and_loops, given, seed=74)
        for pick in range(2):  # of the graph, and of its one relation
            stayed.append(np.sort(np.concatenate([names[r][found[pick]] for r, found in enumerate(results)])))
    assert 0.5 < np.sum(stayed[0] < edges) / edges < 0.7 and 0.4 < np.sum(stayed[0] >= edges) / nodes < 0.8
    for other in stayed[1:]:
        np.testing.assert_array_equal(other, stayed[0])


def test_drop_edge_of_several_relations(few: Workers) -> None:
    """What is left of each relation is what messages go along; in place, one relation of a clone."""
    ends = hetero.edges(few=False)
    wide = hetero.features(75)
    split = hetero.Cut(few.world)
    given, held = [], []
    for rank in range(few.world):
        mine = {t: split.held(t, ends, rank) for t in hetero.TRIPLES}
        numbers = np.concatenate([mine[t] for t in hetero.TRIPLES])
        given.append(
            {
                "part": split.part(rank, ends),
                "features": {"w": numbers},
                "wide": {kind: wide[kind][split.rows(kind, rank)] for kind in hetero.KINDS},
            }
        )
        held.append(mine)
    results = few.run(cases_transforms.drop_typed_edges, given)
    for number, wanted in enumerate((1.0, 0.7, 0.7)):
        total = 0
        for kind in hetero.KINDS:
            expected = np.zeros((hetero.KINDS[kind], 6))
            for t in (t for t in hetero.TRIPLES if t[2] == kind):
                left = np.concatenate([found[number]["left"][t] for found in results])
                assert len(np.unique(left)) == len(left)
                assert all(found[number]["global"][t] == len(left) for found in results)
                total += len(left)
                np.add.at(expected, ends[t][1][left], wide[t[0]][ends[t][0][left]])
            for rank, found in enumerate(results):
                got = found[number]["out"].get(kind)
                close(got, expected[split.rows(kind, rank)], f"{kind} of rank {rank}", 100)
        everything = sum(len(e[0]) for e in ends.values())
        assert abs(total / everything - wanted) < 0.16
    cites = ("paper", "cites", "paper")
    for found in results:
        assert len(found[2]["left"][cites]) == len(found[1]["left"][cites]) // 2


def test_masked_columns_are_agreed(few: Workers) -> None:
    graph = make("random", few.world, seed=76)
    found = [f for f in few.run(cases_transforms.masked_columns, graph.shares())]
    assert all(f == found[0] for f in found if f) and 5 < sum(next(f for f in found if f)) < 35


def test_what_is_refused(few: Workers) -> None:
    """By every worker alike, with what to do in its place."""
    graph = make("random", few.world, seed=77)
    ways = {"adj": "update_all", "lap_pe": "sar.transforms.laplacian_pe(graph, k", "add_edges": "add_self_loop"}
    ways.update(DropNode="before the graph is partitioned", ends="graph.edges", reverse_twice="keep the graph")
    said = few.run(cases_transforms.refusals, graph.shares())
    for rank, found in enumerate(said):
        assert found == said[0], f"rank {rank}"
        for name, text in found.items():
            assert text != "nothing" and ways.get(name, "") in text, (name, text)


def test_blocks(few: Workers) -> None:
    """Rows of a block are some of the nodes; messages along some edges are those of a mask."""
    graph = make("random", few.world, seed=78)
    rng = np.random.default_rng(79)
    x = rng.standard_normal((graph.num_nodes, 3))
    given = []
    for rank in range(graph.world):
        own = np.arange(graph.num_nodes)[graph.rows(rank)]
        seeds = np.sort(rng.choice(own, len(own) // 2, replace=False))
        given.append({"part": graph.part(rank), "x": x[graph.rows(rank)], "seeds": seeds})
    for rank, found in enumerate(few.run(cases_transforms.blocks, given)):
        close(found["out"], found["same"], f"rank {rank}", 10)
        close(found["grad"], found["same_grad"], f"gradient, rank {rank}", 10)
        assert len(found["said"]) == 2 and "construct_mfgs" in found["said"][0] and "block" in found["said"][1]


def test_copies(few: Workers) -> None:
    """Copies share what the engine holds, and live without the original; pickling is refused with what to do."""
    pytest.importorskip("torch_geometric")
    graph = make("random", few.world, seed=80)
    rng = np.random.default_rng(81)
    x, w = rng.standard_normal((graph.num_nodes, 3)), rng.standard_normal((len(graph.src), 1))
    expected = np.zeros_like(x)
    np.add.at(expected, graph.dst, x[graph.src] * w)
    for rank, found in enumerate(few.run(cases.copies, graph.shares(x=x, edges={"w": w}))):
        assert len(found["sums"]) == 5 and found["changed"] == 0
        for name, sums in found["sums"].items():
            close(sums, expected[graph.rows(rank)], f"{name}, rank {rank}", 10)
        assert len(found["said"]) == 12
        assert all("cannot be pickled" in text and "sar.construct_full_graph" in text for text in found["said"])
