"""What scripts of PyG do beside calling layers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import cases_pyg_scripts as cases
from tests.support.graphs import make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")
DRAWS = ["negative_sampling", "batched_negative_sampling", "structured_negative_sampling"]


@pytest.mark.parametrize("changes", [False, True])
def test_hooks(few: Workers, changes: bool) -> None:
    """Hooks of MessagePassing are called in PyG's order, see lazy tensors of edges, and may change them."""
    graph = make("random", few.world, seed=72)
    x = np.random.default_rng(73).standard_normal((graph.num_nodes, cases.IN))
    whole = cases.hooked(x, index=np.stack([graph.src, graph.dst]), changes=changes)
    for rank, one in enumerate(few.run(cases.hooked, graph.shares(x=x), changes=changes)):
        assert [name for name, _ in one["seen"]] == [name for name, _ in whole["seen"]]
        seen = dict(one["seen"])
        assert "EdgeTensor" in seen["message before"] and seen["message after"] == ["EdgeTensor"]
        for name in ("out", "x"):
            np.testing.assert_allclose(one[name], whole[name][graph.rows(rank)], rtol=1e-10, atol=1e-10)


def test_functions_of_edges(few: Workers) -> None:
    graph = make("random", few.world, seed=74)
    loops = graph.src == graph.dst
    kept = []
    found = few.run(cases.answers, graph.shares())
    for rank, one in enumerate(found):
        mine = graph.edges(rank)
        rows = graph.rows(rank).stop - graph.rows(rank).start
        bare = int((~loops[mine]).sum())
        assert one["loops"] == [True, True, False, True]
        assert one["edges"] == [len(mine), len(mine) + rows, bare + rows, bare]
        np.testing.assert_array_equal(
            one["degree"], np.bincount(graph.dst, minlength=graph.num_nodes)[graph.rows(rank)]
        )
        assert one["dropped"][0] == one["dropped"][1] < one["dropped"][2] == len(mine) and one["same"]
        kept.append(one["kept"])
        assert one["data"] == [rows, len(mine), "is_directed"]
        np.testing.assert_array_equal(one["sums"][:, 0], np.bincount(one["ends"], minlength=rows))
    assert 0.4 < np.concatenate(kept).mean() < 0.8


def test_refused(two: Workers) -> None:
    """Each says what it needs and what to do, on every rank."""
    graph = make("random", 2, seed=75)
    texts = {
        **dict.fromkeys(["MetaPath2Vec", "Node2Vec"], "walks"),
        "SignedGCN": "pairs of sar.negative_sampling",
        "Explainer": "explain",
        "change in place": "before it is partitioned",
        "RandomLinkSplit": "of the whole graph",
        "edges of another graph": "a row for each in-edge of own nodes",
        "rows of other nodes": "a row for each node that this worker owns",
        "sum over the wrong size": "a row for each node that this worker owns",
        "edges picked in another order": "by a mask",
        "dropout_edge": "force_undirected",
        **dict.fromkeys(["subgraph, relabelled", "dropout_node, relabelled"], "before it is partitioned"),
        "NeighborLoader": "sar.DistNeighborSampler",
        **dict.fromkeys(["ClusterData", "RandomNodeLoader"], "sar.DistNeighborSampler"),
        **{name: f"sar.{name}, which takes the same" for name in DRAWS},
        "homophily": "leave batch out",
        **dict.fromkeys(["TopKPooling", "SAGPooling", "GraphUNet"], "global_add_pool"),
        "SGFormer": "model = sar.prepare(model, data)",
    }
    for said in two.run(cases.refused, graph.shares()):
        for name, text in said.items():
            assert texts.get(name, "needs the edges of the whole graph") in text, f"{name}: {text}"


def test_no_kernel_gets_halo_rows(few: Workers) -> None:
    """Whatever takes the sources of edges for numbers of nodes is refused, and the error names what was called."""
    graph = make("random", few.world, seed=75)
    for said in few.run(cases.kernels, graph.shares()):
        for name, text in said.items():
            assert "not supported on a graph split over workers" in text or name == "pickle", (name, text)
        assert "torch_geometric.edge_index" in said["EdgeIndex @ x"]
