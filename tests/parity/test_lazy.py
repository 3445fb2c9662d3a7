"""Edge tensors that are computed when they are read, ``edge_softmax``, and what layers are told about degrees."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from tests.parity import cases_lazy
from tests.parity.cases_lazy import LAZY, VALUES, D, H
from tests.support.graphs import Graph, close, make
from tests.support.sessions import Workers


def rows(graph: Graph, *shape: int, seed: int = 40, dtype: str = "float64") -> np.ndarray:
    made: np.ndarray = np.random.default_rng(seed).standard_normal((graph.num_nodes, *shape)).astype(dtype)
    return made


@pytest.mark.parametrize("kind", ["random", "empty_worker"])
@pytest.mark.parametrize("name", [*LAZY, *VALUES])
def test_operation(few: Workers, name: str, kind: str) -> None:
    """An operation gives the same on an edge tensor as on its values, and stays lazy where it is said to."""
    graph = make(kind, few.world, seed=41)
    p = np.random.default_rng(42).standard_normal((len(graph.src), H, 1))
    w = np.random.default_rng(43).standard_normal((1, H, D))
    given = graph.shares({"p": p}, u=rows(graph, H, D), v=rows(graph, H, D, seed=44))
    for rank, found in enumerate(few.run(cases_lazy.operation, given, name=name, w=w)):
        assert found["lazy_stayed"] == (name in LAZY) and not found["plain_stayed"]
        close(found["lazy"]["out"], found["plain"]["out"], f"{name} on rank {rank}", 10)
        for which, lazy, plain in zip("uvwp", found["lazy"]["grads"], found["plain"]["grads"]):
            assert (lazy is None) == (plain is None), f"gradient of {which}"
            if plain is not None:
                close(lazy, plain, f"{name}: gradient of {which} on rank {rank}", 10)


def test_update_all_of_a_chain(few: Workers) -> None:
    graph = make("random", few.world, seed=45)
    w = np.random.default_rng(43).standard_normal((1, H, D))
    given = graph.shares(u=rows(graph, H, D), v=rows(graph, H, D, seed=44))
    results = few.run(cases_lazy.in_update_all, given, w=w)
    for found in results:
        close(found["lazy"]["out"], found["plain"]["out"], "output", 10)
        for n in (0, 1):
            close(found["lazy"]["grads"][n], found["plain"]["grads"][n], "gradient", 10)
    # of a parameter each worker has a part, and which one depends on who computes the gradients
    lazy, plain = (sum(found[way]["grads"][2] for found in results) for way in ("lazy", "plain"))
    close(lazy, plain, "gradient of the parameter", 10)


def test_dropout(few: Workers) -> None:
    """The seed is rank 0's, so it is the same everywhere; forward and backward have one mask."""
    graph = make("random", few.world, seed=46)
    given = graph.shares(u=rows(graph, 7), v=rows(graph, 7, seed=44))
    results = few.run(cases_lazy.dropped, given, seed=5)
    assert len({tuple(r["seeds"]) for r in results}) == 1
    expected = np.zeros((graph.num_nodes, 7))
    for rank, found in enumerate(results):
        first, second, again = found["seeds"]
        assert first == again != second and found["off"]
        np.testing.assert_array_equal(found["first"], found["again"])
        kept = found["first"] != 0
        np.testing.assert_allclose(found["first"][kept], found["plain"][kept] / 0.6, rtol=1e-12)
        edges = graph.edges(rank)
        summed = np.zeros((graph.num_nodes, 7))
        np.add.at(summed, graph.dst[edges], found["first"])
        close(found["fused"], summed[graph.rows(rank)], "the sum of what was kept", 10)
        np.add.at(expected, graph.src[edges], kept / 0.6)
    masks = np.concatenate([r["first"].ravel() != 0 for r in results])
    assert 0.55 < masks.mean() < 0.65
    assert np.concatenate([(r["first"] != 0).ravel() != (r["second"] != 0).ravel() for r in results]).mean() > 0.3
    for rank, found in enumerate(results):
        close(found["u"], expected[graph.rows(rank)], f"gradient through the mask, rank {rank}", 10)


@pytest.mark.parametrize("spread", [1.0, 60.0, 3000.0], ids=["near", "far", "very_far"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_edge_softmax(few: Workers, dtype: str, shape: tuple[int, ...], spread: float) -> None:
    dgl = pytest.importorskip("dgl")
    graph = make("random", few.world, seed=47)
    rng = np.random.default_rng(48)
    logits = (rng.standard_normal((len(graph.src), *shape)) * spread).astype(dtype)
    grad = rng.standard_normal((len(graph.src), *shape)).astype(dtype)
    chosen = rng.random(len(graph.src)) < 0.5
    given = graph.shares({"logits": logits, "grad": grad})
    for rank, args in enumerate(given):
        args["chosen"] = np.flatnonzero(chosen[graph.edges(rank)])
    results = few.run(cases_lazy.softmaxes, given)
    for name in ("dst", "src", "some", "some_src"):
        part = np.flatnonzero(chosen) if name.startswith("some") else np.arange(len(graph.src))
        x = torch.from_numpy(logits[part].copy()).requires_grad_()
        norm_by = "src" if name.endswith("src") else "dst"
        ends = torch.from_numpy(graph.src[part]), torch.from_numpy(graph.dst[part])
        sub = dgl.graph(ends, num_nodes=graph.num_nodes)
        out = dgl.ops.edge_softmax(sub, x, norm_by=norm_by)
        out.backward(torch.from_numpy(grad[part]))
        assert x.grad is not None
        for rank, found in enumerate(results):
            mine = np.isin(part, graph.edges(rank))
            close(found[name]["out"], out.detach().numpy()[mine], f"{name} of rank {rank}")
            close(found[name]["grad"], x.grad.numpy()[mine], f"gradient of {name}, rank {rank}")


def test_nodes_without_in_edges(few: Workers) -> None:
    """Layers of DGL run, as those of scripts expect that were written for degrees of at least 1; counts stay true."""
    pytest.importorskip("dgl")
    graph = make("no_edges_between", few.world, seed=49)
    with_loops = np.concatenate([graph.src, np.arange(graph.num_nodes - 1)])
    graph = graph._replace(src=with_loops, dst=np.concatenate([graph.dst, np.arange(graph.num_nodes - 1)]))
    lonely = graph.num_nodes - 1  # only the owner of the last node can see that one is without
    keep = graph.dst != lonely
    graph = graph._replace(src=graph.src[keep], dst=graph.dst[keep])
    results = few.run(cases_lazy.no_in_edge, graph.shares(x=rows(graph, 3, dtype="float32")))
    assert [r[:4] for r in results] == [["nothing"] * 3 + ["(1, 2)"]] * few.world
    assert sum(r[4] == "True" for r in results) == 1
    graph = graph._replace(src=np.append(graph.src, 0), dst=np.append(graph.dst, lonely))
    results = few.run(cases_lazy.no_in_edge, graph.shares(x=rows(graph, 3, dtype="float32")))
    assert [r[:4] for r in results] == [["nothing"] * 3 + ["(1, 2)"]] * few.world


def test_gradient_past_the_overrides(two: Workers) -> None:
    graph = make("random", 2, seed=50)
    given = graph.shares(u=rows(graph, 2), v=rows(graph, 2))
    for said, filled, silent, shown in two.run(cases_lazy.stray_gradient, given):
        assert "materialize()" in said and filled == "True" and silent == "False"
        assert shown.startswith("EdgeTensor(shape=(") and "sub(load(u), load(v))" in shown


def test_patch_dgl_is_idempotent() -> None:
    dgl = pytest.importorskip("dgl")
    import sar

    sar.patch_dgl()
    module = importlib.import_module("dgl.ops.edge_softmax")
    before = module.edge_softmax_internal, dgl.reverse, dgl.nn.GATConv.forward
    sar.patch_dgl()
    assert before == (module.edge_softmax_internal, dgl.reverse, dgl.nn.GATConv.forward)
    graph = dgl.graph(([0, 1, 2], [1, 2, 0]))  # DGL's own graphs are as they were
    logits = torch.randn(3, 2)
    torch.testing.assert_close(sar.edge_softmax(graph, logits), torch.ones(3, 2))
    assert dgl.reverse(graph).edges()[0].tolist() == [1, 2, 0]


def test_bad_arguments() -> None:
    import sar

    class Graph:
        _relations = [type("R", (), {"num_edges": 3, "canonical": ("a", "b", "c")})()]
        etypes = ["b"]

    with pytest.raises(ValueError, match="norm_by='both'"):
        sar.edge_softmax(Graph(), torch.zeros(3), norm_by="both")
    with pytest.raises(ValueError, match="3 in-edges"):
        sar.edge_softmax(Graph(), torch.zeros(4))
    with pytest.raises(TypeError, match="must be a torch tensor"):
        sar.edge_softmax(Graph(), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="each edge of eids"):
        sar.edge_softmax(Graph(), torch.zeros(2), eids=torch.tensor([0]))


def test_cases_cover_both() -> None:
    assert not set(cases_lazy.LAZY) & set(cases_lazy.VALUES)


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_edge_softmax_of_several_relations(few: Workers, norm_by: str) -> None:
    """The softmax is over the edges of all relations that end (or begin) at a node."""
    dgl = pytest.importorskip("dgl")
    from tests.support import hetero

    ends = hetero.edges()
    rng = np.random.default_rng(51)
    logits = {t: rng.standard_normal((len(e[0]), 2)) * 5 for t, e in ends.items()}
    whole = dgl.heterograph({t: tuple(map(torch.from_numpy, e)) for t, e in ends.items()}, num_nodes_dict=hetero.KINDS)
    leaves = {t: torch.from_numpy(v).requires_grad_() for t, v in logits.items()}
    out = dgl.ops.edge_softmax(whole, leaves, norm_by=norm_by)
    torch.autograd.backward([(v * v).sum() for v in out.values()])
    cut = hetero.Cut(few.world)
    given, order = [], []
    for rank in range(few.world):
        held = {t: cut.held(t, ends, rank) for t in hetero.TRIPLES}
        column = np.concatenate([logits[t][held[t]] for t in hetero.TRIPLES])
        given.append({"part": cut.part(rank, ends), "features": {"w": column}})
        # edges reach the graph shard by shard: by the owner of the source
        order.append({t: m[np.argsort(cut.owner[t[0]][ends[t][0][m]], kind="stable")] for t, m in held.items()})
    for rank, found in enumerate(few.run(cases_lazy.typed_softmax, given, norm_by=norm_by)):
        for t, (value, grad) in found.items():
            mine = order[rank][t]
            close(value, out[t].detach().numpy()[mine], f"{t} of rank {rank}", 10)
            expected = leaves[t].grad
            assert expected is not None
            close(grad, expected.numpy()[mine], f"gradient of {t}, rank {rank}", 10)


def test_convert_batchnorm() -> None:
    """Parameters, running statistics, names and mode stay; other layers are left alone."""
    import sar

    nn = torch.nn
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4, affine=False))
    model[1].weight.data.uniform_(1, 2)
    model(torch.randn(9, 3))
    model.eval()
    x = torch.randn(5, 3)
    before, state, weight = model(x), dict(model.state_dict()), model[1].weight
    made = sar.convert_batchnorm(model)
    assert made is model and [type(m).__name__ for m in made] == ["Linear", "DistributedBN1D", "DistributedBN1D"]
    assert made[1].weight is weight and not made[1].training and made[2].weight is None
    assert list(made.state_dict()) == list(state)
    torch.testing.assert_close(made(x), before)
    alone = sar.convert_batchnorm(nn.BatchNorm1d(4, track_running_stats=False))
    assert isinstance(alone, sar.DistributedBN1D) and alone.training and not alone.state_dict().get("running_mean")
