"""Layers of sar.nn against those of dgl.nn with the same parameters on the whole graph, element by element."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import sar.nn
from tests.parity import cases_nn
from tests.parity.cases_layers import FEW, NORMS
from tests.parity.cases_nn import over_relations
from tests.parity.layer_oracle import compare
from tests.support import hetero
from tests.support.command import run_sar
from tests.support.graphs import close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers, half
from tests.support.worker import default_dtype

IN = 6
LAYERS = [f"graph_{norm}" for norm in NORMS] + ["graph_both_weights", "sage_mean", "sage_mean_widening_weights"]
LAYERS += ["sage_gcn", "sage_gcn_widening", "sage_pool", "sage_lstm", "gin_sum", "gin_max", "gin_mean_weights"]
LAYERS += [name for name in FEW if name.startswith("gat")] + ["appnp", "appnp_weights"]
LAYERS += ["rel_graph", "rel_graph_basis_norm", "rel_graph_bdd_norm"]


@pytest.mark.parametrize("layer", LAYERS)
def test_layer(few: Workers, layer: str) -> None:
    pytest.importorskip("dgl")
    compare(few, make("empty_worker", few.world, seed=30), layer, "float64", "sar")


@pytest.mark.parametrize("layer", half(LAYERS))
def test_layer_single_precision(two: Workers, layer: str) -> None:
    pytest.importorskip("dgl")
    compare(two, make("random", 2, seed=31), layer, "float32", "sar")


@pytest.mark.parametrize("kind", ["one_node", "no_edges", "hub"])
def test_odd_graphs(pool: Pool, kind: str) -> None:
    pytest.importorskip("dgl")
    workers = Workers(pool, 4, "shm")
    for layer in ("graph_both", "sage_pool", "gat_zero", "gatv2_zero", "appnp", "rel_graph"):
        # without any edge DGL's typed layer cannot run, and its maximum sends the gradient of every row to node 0
        if kind != "no_edges" or layer not in ("rel_graph", "sage_pool"):
            compare(workers, make(kind, 4, seed=32), layer, "float64", "sar")


def test_eight_workers(pool: Pool) -> None:
    pytest.importorskip("dgl")
    for layer in ("graph_both", "sage_mean", "gat_zero", "gin_max"):
        compare(Workers(pool, 8, "shm"), make("random", 8, seed=33), layer, "float64", "sar")


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max", "stack"])
def test_layers_over_relations(pool: Pool, aggregate: str) -> None:
    """HeteroGraphConv on 4 node types and 8 relations; workers without nodes of a type, or without any."""
    dgl = pytest.importorskip("dgl")
    workers = Workers(pool, 4 if aggregate == "sum" else 2, "shm")
    cut, ends = hetero.Cut(workers.world), hetero.edges()
    x, grad = hetero.features(1), hetero.features(2, 3)
    with default_dtype(torch.float64):
        torch.manual_seed(8)
        model = over_relations(aggregate, dgl.nn, hetero.TRIPLES, 6)
        graph = dgl.heterograph(
            {t: (torch.from_numpy(s), torch.from_numpy(d)) for t, (s, d) in ends.items()}, num_nodes_dict=hetero.KINDS
        )
        features = {kind: torch.from_numpy(rows).requires_grad_() for kind, rows in x.items()}
        out = model(graph, features)
        if aggregate == "stack":
            grad = {k: np.stack([grad[k] * (n + 1) for n in range(rows.shape[1])], 1) for k, rows in out.items()}
        sum((out[kind] * torch.from_numpy(grad[kind])).sum() for kind in sorted(out)).backward()
    state = [p.detach().numpy() for p in model.parameters()]
    arguments = []
    for rank in range(workers.world):
        own = {k: cut.rows(k, rank) for k in hetero.KINDS}
        part = cut.part(rank, ends)
        arguments.append({"part": part, **{n: {k: v[k][own[k]] for k in v} for n, v in (("x", x), ("grad", grad))}})
    results = workers.run(cases_nn.hetero_layer, arguments, aggregate=aggregate, state=state)
    for rank, result in enumerate(results):
        assert set(result["out"]) == set(out)
        for kind in out:
            rows = cut.rows(kind, rank)
            close(result["out"][kind], out[kind].detach().numpy()[rows], f"output of {kind}, rank {rank}", 10)
            wanted = features[kind].grad
            assert wanted is not None
            close(result["x"][kind], wanted.numpy()[rows], f"gradient of {kind}, rank {rank}", 10)
        for n, parameter in enumerate(model.parameters()):
            assert parameter.grad is not None
            close(result["parameters"][n], parameter.grad.numpy(), f"gradient of parameter {n}, rank {rank}", 10)


@pytest.mark.parametrize("operator", ["raw", "rw", "gcn", "ppr"])
def test_sign_features(few: Workers, operator: str) -> None:
    graph = make("random", few.world, seed=34)
    rng = np.random.default_rng(6)
    x = rng.standard_normal((graph.num_nodes, IN))
    w = rng.random(len(graph.src)) if operator in ("raw", "rw") else None
    a = np.zeros((graph.num_nodes, graph.num_nodes))
    np.add.at(a, (graph.dst, graph.src), 1.0 if w is None else w)
    into = np.maximum(np.bincount(graph.dst, minlength=graph.num_nodes), 1)[:, None]
    out = np.maximum(np.bincount(graph.src, minlength=graph.num_nodes), 1)[None, :]
    step = {"raw": a, "rw": a / into}.get(operator, a / np.sqrt(into) / np.sqrt(out))
    expected = [x]
    for _ in range(3):
        expected.append(step @ expected[-1] if operator != "ppr" else 0.7 * step @ expected[-1] + 0.3 * x)
    for rank, made in enumerate(few.run(cases_nn.sign, graph.shares(x=x, edges={"w": w}), k=3, operator=operator)):
        assert len(made) == 4
        for power, rows in enumerate(made):
            close(rows, expected[power][graph.rows(rank)], f"power {power}, rank {rank}")


def test_layers_on_blocks(pool: Pool) -> None:
    workers = Workers(pool, 4, "shm")
    graph = make("empty_worker", 4, seed=36)
    rng = np.random.default_rng(8)
    x, grad = rng.standard_normal((graph.num_nodes, IN)), rng.standard_normal((graph.num_nodes, 4))
    arguments = []
    for rank in range(4):
        own = len(x[graph.rows(rank)])
        seeds = np.flatnonzero(rng.random(own) < 0.3) if rank != 3 else np.zeros(0, np.int64)
        arguments.append({"part": graph.part(rank), "x": x[graph.rows(rank)], "seeds": seeds, "grad": grad})
    for rank, result in enumerate(workers.run(cases_nn.on_blocks, arguments)):
        for key in ("out", "x"):
            close(result["blocks"][key], result["full"][key], f"{key} of rank {rank}")


def test_attention_dropout(two: Workers) -> None:
    graph = make("random", 2, seed=35)
    x = np.random.default_rng(7).standard_normal((graph.num_nodes, IN)).astype("float32")
    arguments = [{"part": graph.part(r), "x": x[graph.rows(r)], "seed": r} for r in range(2)]
    results = two.run(cases_nn.dropped, arguments)
    first, second, plain = (np.concatenate([r[key] for r in results]) for key in ("first", "second", "plain"))
    for drawn in (first, second):
        kept = drawn != 0
        close(drawn[kept], 2 * plain[kept], "factors that are kept are doubled")
        assert 0.4 < kept.mean() < 0.6
    assert (first != second).any()


def test_arguments() -> None:
    nn = sar.nn
    with pytest.raises(ValueError, match="norm 'middle' is unknown"):
        nn.GraphConv(2, 2, norm="middle")
    with pytest.raises(ValueError, match="aggregator 'sum' is unknown"):
        nn.SAGEConv(2, 2, "sum")
    with pytest.raises(ValueError, match="aggregator 'min' is unknown"):
        nn.GINConv(aggregator_type="min")
    with pytest.raises(ValueError, match="needs num_bases"):
        nn.TypedLinear(4, 4, 2, "basis")
    with pytest.raises(ValueError, match="do not divide the widths 4 and 5"):
        nn.TypedLinear(4, 5, 2, "bdd", 2)
    with pytest.raises(ValueError, match=r"types 0 \.\. 2; the layer knows 0 \.\. 1"):
        nn.TypedLinear(1, 1, 2)(torch.zeros(3, 1), torch.arange(3))
    with pytest.raises(ValueError, match="aggregate 'product' is unknown"):
        nn.HeteroGraphConv({}, "product")


@pytest.mark.parametrize("workers", [1, 2])
def test_layers_where_dgl_cannot_be_imported(workers: int) -> None:
    """The same layers against dense matrices, under `sar launch`, where an import of DGL fails."""
    script = Path(__file__).parent / "without_dgl.py"
    done = run_sar("launch", "-n", workers, script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all layers agree" in done.stdout
