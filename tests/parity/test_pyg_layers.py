"""Layers of torch_geometric, not touched, against PyG on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg
from tests.parity.pyg_own_layers import OWN
from tests.parity.pyg_specs import IN, OUT, REFUSED, SPECS, TYPES
from tests.support.graphs import Graph, make
from tests.support.pool import Pool
from tests.support.sessions import SESSIONS, Session, Workers, half

pytest.importorskip("torch_geometric")

CANCELLING = {"gen_edges", "own_message", "pna_model"}
"""Layers with differences of nearly equal numbers, such as standard deviations: on some graphs, single precision is off
by up to 5e-5."""
EVERYWHERE = [session for session in SESSIONS if session.world <= 4]
UNIT = {"float64": 1e-10, "float32": 1e-5}


def oracle(graph: Graph, name: str, inputs: list[np.ndarray], dtype: str, like: Any = None) -> dict[str, Any]:
    """PyG on the whole graph; with the parameters and gradients of ``like`` where given."""
    whole = torch.from_numpy(np.stack([graph.src, graph.dst]))
    inputs = [x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs]
    grads = None if like is None else [g.astype(dtype) for g in like["grads"]]
    return cases_pyg.step(name, whole, inputs, grads, None if like is None else like["state"], dtype)


def near(value: np.ndarray, truth: np.ndarray, unit: float, what: str) -> None:
    """Within ``unit`` of the largest entry, or of 1."""
    assert value.shape == truth.shape, f"{what}: {value.shape}, expected {truth.shape}"
    if truth.size:
        error = float(np.abs(value - truth).max() / max(np.abs(truth).max(), 1.0))
        assert error <= unit, f"{what}: {error:.1e}"


def check(
    workers: Workers,
    graph: Graph,
    name: str,
    dtype: str,
    separate: tuple[int, ...] = (),
    rounds: bool = False,
    whole: bool = False,
    exchange: str = "auto",
) -> list[Any]:
    """Runs a layer on the workers and alone.

    :param separate: ranks that run its steps one by one
    :param rounds: results and gradients of inputs may be as far off as PyG's own in single precision, times four
    :param whole: inputs are whole numbers
    :param exchange: the setting of that name
    """
    inputs = cases_pyg.draw(graph, name, dtype)
    inputs = [x.round() if whole and x.dtype.kind == "f" else x for x in inputs]
    expected = oracle(graph, name, inputs, dtype)
    truth = expected if dtype == "float64" else oracle(graph, name, inputs, "float64", like=expected)
    kinds = ["n" if kind[0] in ("n", "nt") else "e" for kind in cases_pyg.rows(name)]

    def own(rank: int, value: np.ndarray, kind: str) -> np.ndarray:
        return value[graph.rows(rank)] if kind == "n" else value[graph.edges(rank)]

    ranks = range(graph.world)
    own_inputs = [[own(rank, x, kind) for x, kind in zip(inputs, kinds)] for rank in ranks]
    given = graph.shares(grads=expected["grads"], ranks={"inputs": own_inputs})
    same = {"name": name, "state": expected["state"], "dtype": dtype, "separate": separate, "exchange": exchange}
    found = workers.run(cases_pyg.layer, given, **same)

    basic = UNIT[dtype] * (5 if rounds and dtype == "float32" and name in CANCELLING else 1)

    def allowed(of: np.ndarray, value: np.ndarray) -> float:
        rounding = float(np.abs(of - value).max(initial=0) / max(np.abs(value).max(initial=0), 1.0))
        return max(basic, 4 * rounding)

    for rank, one in enumerate(found):
        for n, value in enumerate(one["out"]):
            unit = allowed(expected["out"][n], truth["out"][n]) if rounds else basic
            near(value, own(rank, truth["out"][n], "n"), unit, f"result {n} of rank {rank}")
        for n, (value, kind) in enumerate(zip(one["inputs"], kinds)):
            if truth["inputs"][n] is not None:
                unit = allowed(expected["inputs"][n], truth["inputs"][n]) if rounds else basic
                near(value, own(rank, truth["inputs"][n], kind), unit, f"gradient of input {n}, rank {rank}")
        for key, value in truth["buffers"].items():
            near(np.asarray(one["buffers"][key]), np.asarray(value), basic, f"buffer {key} of rank {rank}")
        assert one["how"] == cases_pyg.KNOWN[name].how and not one["warned"]
    for key, value in truth["parameters"].items():
        unit = allowed(expected["parameters"][key], value)
        near(sum(one["parameters"][key] for one in found), value, unit, f"gradient of {key}")
    return found


@pytest.mark.parametrize("name", SPECS)
def test_layer(few: Workers, name: str) -> None:
    """Results, and the gradients of all inputs and parameters, in double precision; of 4 workers one owns no node."""
    check(few, make("empty_worker" if few.world == 4 else "random", few.world, seed=30), name, "float64")


@pytest.mark.parametrize("name", OWN)
def test_own_layer(few: Workers, name: str) -> None:
    check(few, make("empty_worker" if few.world == 4 else "random", few.world, seed=36), name, "float64")


@pytest.mark.parametrize("name", half(SPECS))
def test_single_precision(two: Workers, name: str) -> None:
    """Single precision is within 1e-5 of PyG in double precision, relative to the largest entry or 1; gradients of
    parameters, which are sums over all rows, within four times PyG's own rounding where that is more. A standard
    deviation of nearly equal numbers amplifies the rounding of sums, and so their order: rows alone travel there."""
    check(two, make("random", 2, seed=32), name, "float32", exchange="pull" if name == "eg" else "auto")


@pytest.mark.full
@pytest.mark.parametrize("session", EVERYWHERE, ids=str)
@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("name", SPECS)
def test_everywhere(pool: Pool, name: str, dtype: str, session: Session) -> None:
    """Both precisions over both transports, on graphs with isolated nodes, self loops and parallel edges, where each
    worker owns nodes and where one owns none (``make test-layers-pyg``). Where four times PyG's own rounding in
    single precision is more than 1e-5, that is allowed; 5e-5 for three layers."""
    workers = Workers(pool, *session)
    for kind in ("random", "empty_worker")[: session.world]:
        check(workers, make(kind, session.world, seed=35), name, dtype, rounds=dtype == "float32")


@pytest.mark.parametrize("kind", ["no_edges_between", "one_node", "no_edges", "hub"])
@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat", "gatv2_edges", "edge_conv"])
def test_other_graphs(two: Workers, name: str, kind: str) -> None:
    """Workers without edges between them, without nodes, without edges, and a node with very many."""
    check(two, make(kind, 2, seed=33), name, "float64")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(two: Workers, name: str) -> None:
    """Layers that would see their worker's nodes alone say so on every rank."""
    graph = make("random", 2, seed=34)
    for said in two.run(cases_pyg.refused, graph.shares(), name=name):
        assert "on a graph split over workers" in said


def test_colours(few: Workers) -> None:
    """Colours of WLConv have PyG's numbers on every worker; histograms count the nodes of all."""
    graph = make("empty_worker" if few.world == 4 else "random", few.world, seed=37)
    first = np.random.default_rng(38).integers(0, TYPES, graph.num_nodes)
    truth = cases_pyg.colours(torch.from_numpy(np.stack([graph.src, graph.dst])), first)
    for rank, one in enumerate(few.run(cases_pyg.colours_on_worker, graph.shares(first=first))):
        np.testing.assert_array_equal(one["colours"], truth["colours"][graph.rows(rank)])
        for value, expected in zip(one["histograms"], truth["histograms"], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["sage_max", "graph_max"])
@pytest.mark.parametrize("kind", ["random", "hub"])
def test_equal_messages(few: Workers, name: str, kind: str) -> None:
    """The gradient of a maximum is divided among the equal messages of a node."""
    check(few, make(kind, few.world, seed=35), name, "float64", whole=True)


@pytest.mark.parametrize("name", ["sage", "sage_square", "sage_wide", "gcn", "gat", "gat_mean", "gatv2", "transformer"])
@pytest.mark.parametrize("separate", [(), (0,), (1,), (0, 1)])
def test_in_one_piece(two: Workers, name: str, separate: tuple[int, ...]) -> None:
    """Each rank may decide for itself whether SAGEConv, GCNConv or GATConv runs in one piece, and whether GATv2Conv and
    TransformerConv compute a linear map again. A SAGEConv that narrows does so on all ranks or on none."""
    found = check(two, make("random", 2, seed=71), name, "float64", separate)
    narrows = name == "sage" and len(separate) > 0
    assert [one["pieces"] for one in found] == [int(rank not in separate and not narrows) for rank in range(2)]


def test_a_layer_that_narrows_sends_the_narrower_rows(two: Workers) -> None:
    """SAGEConv sends its product in forward, and in backward the gradient of it."""
    graph = make("random", 2, seed=71)
    found = [check(two, graph, "sage", "float64", separate, exchange="pull") for separate in ((0,), ())]
    steps, narrow = ([one["sent"] for one in of] for of in found)
    assert min(steps) > 0 and [n * IN for n in narrow] == [n * OUT for n in steps]


@pytest.mark.parametrize("name", ["sage", "gcn", "gin", "gat", "gatv2", "transformer"])
def test_constant_inputs(two: Workers, name: str) -> None:
    """Gradients of parameters are the same where rows of nodes need none, as in the first layer of a model."""
    graph = make("random", 2, seed=73)
    inputs = cases_pyg.draw(graph, name, "float64")
    whole = oracle(graph, name, inputs, "float64")
    given = graph.shares(inputs=inputs[:1], grads=whole["grads"])
    found = two.run(cases_pyg.layer, given, name=name, state=whole["state"], dtype="float64", constant=True)
    for rank, one in enumerate(found):
        near(one["out"][0], whole["out"][0][graph.rows(rank)], UNIT["float64"], "result")
    for key, value in whole["parameters"].items():
        near(sum(one["parameters"][key] for one in found), value, UNIT["float64"], key)


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("name", ["gcn", "gat", "gat_mean", "gat_wide", "gatv2", "transformer"])
def test_bits_in_one_piece(two: Workers, name: str, dropout: float, dtype: str) -> None:
    """Results and gradients in one piece are those of the layer's steps, bit by bit, whichever ranks run these, and
    with the same dropout of attention."""
    graph = make("random", 2, seed=72)
    inputs = cases_pyg.draw(graph, name, dtype)
    whole = oracle(graph, name, inputs, dtype)
    given = graph.shares(inputs=inputs[:1], grads=whole["grads"])
    common = {"name": name, "state": whole["state"], "dtype": dtype, "dropout": dropout}
    steps, *others = (two.run(cases_pyg.layer, given, separate=s, **common) for s in ((0, 1), (), (0,), (1,)))
    dropped = not np.allclose(steps[0]["out"][0], whole["out"][0][graph.rows(0)], 1e-4, 1e-4)
    assert dropped == (name != "gcn" and dropout > 0)
    for found in others:
        for one, expected in zip(found, steps):
            for what in ("out", "inputs"):
                np.testing.assert_array_equal(one[what][0], expected[what][0], what)
            for key, value in expected["parameters"].items():
                np.testing.assert_array_equal(one["parameters"][key], value, key)
