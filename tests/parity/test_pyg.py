"""Data of PyG from partitions, its edge index, and what scripts do with them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import sar
from tests.parity import cases_pyg
from tests.parity.pyg_specs import IN
from tests.support.command import run_sar
from tests.support.graphs import close, make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")

COLUMNS = ["x", "y", "train_mask", "edge_attr", "n_id"]


def test_from_files(few: Workers, tmp_path: Path) -> None:
    """A graph file, cut and loaded: columns, results and gradients of two layers."""
    import torch_geometric.nn as nn

    graph, rng = make("random", few.world, seed=61), np.random.default_rng(62)
    n, edges = graph.num_nodes, len(graph.src)
    x, y = rng.standard_normal((n, 5)).astype("float32"), rng.integers(0, 6, n)
    mask = rng.random(n) < 0.5
    index = np.stack([graph.src, graph.dst])
    attr = rng.standard_normal((edges, 2)).astype("float32")
    np.savez(tmp_path / "g.npz", edge_index=index, x=x, y=y, train_mask=mask, edge_attr=attr)
    parts = tmp_path / "parts"
    done = run_sar("partition", tmp_path / "g.npz", "--parts", few.world, "--method", "random", "--out", parts)
    assert done.returncode == 0, done.stderr
    torch.manual_seed(5)
    model = nn.Sequential("x, e", [(nn.GCNConv(5, 8), "x, e -> x"), (nn.GATConv(8, 3, heads=2), "x, e -> x")])
    state = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    out = model(torch.from_numpy(x), torch.from_numpy(index))
    torch.nn.functional.cross_entropy(out[mask], torch.from_numpy(y)[mask], reduction="sum").backward()
    found = few.run(cases_pyg.from_files, path=str(parts), names=COLUMNS, state=state)
    assert sorted(np.concatenate([one["n_id"] for one in found]).tolist()) == list(range(n))
    assert sum(one["sizes"][1] for one in found) == edges
    for one in found:
        assert one["columns"] == sorted(COLUMNS) and one["sizes"][2] == 5 and one["sizes"][3] == 2 * edges
        assert one["sizes"][0] == len(one["n_id"]) and one["sizes"][1] == one["sizes"][4]
        close(one["out"], out.detach().numpy()[one["n_id"]], "result")
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            close(one["grads"][name], parameter.grad.numpy(), f"gradient of {name}", 3)


def test_a_rank_that_looks_changes_nothing(two: Workers) -> None:
    """Hooks and messages of one rank print what they see: every number stays."""
    graph = make("random", 2, seed=63)
    x = np.random.default_rng(64).standard_normal((graph.num_nodes, IN))
    found = {}
    for who in (None, 0, 1):
        given = [{"part": graph.part(r), "x": x[graph.rows(r)], "looks": r == who} for r in range(2)]
        found[who] = two.run(cases_pyg.watched, given)
    for who in (0, 1):
        assert found[who][who]["shown"] == 7 and found[who][1 - who]["shown"] == 0
        for one, expected in zip(found[who], found[None]):
            for name in ("out", "x"):
                np.testing.assert_array_equal(one[name], expected[name])


def test_errors(two: Workers) -> None:
    graph = make("random", 2, seed=65)
    for said in two.run(cases_pyg.said, graph.shares()):
        for text, part in zip(
            said,
            ["a row for each node that this worker owns"] * 2
            + ["needs the edges of the whole graph", "two graphs", "two graphs"]
            + ["only a self loop for each own node"],
        ):
            assert part in text


def test_numbers(few: Workers) -> None:
    """Reading an edge index: columns and own rows; it can be taken apart and put together."""
    graph = make("empty_worker", few.world, seed=66)
    for rank, found in enumerate(few.run(cases_pyg.numbers, graph.shares())):
        edges, start = graph.edges(rank), graph.rows(rank).start
        columns, rows = found["edge_index"]
        np.testing.assert_array_equal(found["column_nodes"][columns], graph.src[edges])
        np.testing.assert_array_equal(rows + start, graph.dst[edges])
        np.testing.assert_array_equal(found["flipped"], found["edge_index"][::-1])
        assert found["same"] == [True, True, False]
        apart = graph.src[edges] != graph.dst[edges]
        np.testing.assert_array_equal(found["kept"][1] + start, graph.dst[edges][apart])
        n = len(edges)
        assert found["sizes"] == [[2, n], n, 2 * len(graph.src), n, len(graph.src)]
        assert found["shown"][0].startswith("SplitEdgeIndex(tensor(") and "sources" in found["shown"][1]
        assert found["type"] == ["torch.int64", True, True]


def test_functions_that_a_script_holds(few: Workers) -> None:
    """They are PyG's own, and right on split graphs by the overrides of torch's functions, or refused by name."""
    from torch_geometric.utils import scatter, softmax

    graph = make("random", few.world, seed=67)
    x = np.random.default_rng(68).standard_normal((graph.num_nodes, 3))
    whole, src, dst = torch.from_numpy(x).requires_grad_(), torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    n = graph.num_nodes
    logits = whole[src] * whole[dst]
    most = scatter(logits, src, 0, n, "max")
    most.square().sum().backward()
    assert whole.grad is not None
    expected = {
        "sums": scatter(softmax(logits, dst), dst, 0, n),
        "by_source": scatter(softmax(logits, src), src, 0, n),
        "most": most,
        "grad": whole.grad,
    }
    for rank, found in enumerate(few.run(cases_pyg.held, graph.shares(x=x))):
        for name, value in expected.items():
            close(found[name], value.detach().numpy()[graph.rows(rank)], name)
        for ends, degrees in zip((graph.src, graph.dst), found["degrees"]):
            np.testing.assert_array_equal(degrees, np.bincount(ends, minlength=n)[graph.rows(rank)])
        assert found["softmax"] == "softmax" and found["same"] and found["kept"]
        assert found["loops"] == [bool((graph.src == graph.dst).any()), False]
        for name, text in zip(("coalesce", "to_undirected", "assortativity"), found["texts"]):
            assert f"torch_geometric.utils.{name} is" in text and "it needs the edges of the whole graph" in text


def test_plain_models_compile(two: Workers) -> None:
    graph = make("random", 2, seed=69)
    failed, _ = two.run(cases_pyg.plain_models, graph.shares())
    assert failed == []


# ---- replacements ---------------------------------------------------------------


def test_replaced_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """In modules of torch_geometric alone, and nothing where one name is missing."""
    patches = importlib.import_module("sar.integrations.pyg.patches")
    gat, utils = (importlib.import_module(f"torch_geometric.{name}") for name in ("nn.conv.gat_conv", "utils"))
    sar.pyg.restore()
    plain, mine, drop = utils.softmax, sys.modules[__name__].__dict__, utils.dropout_edge
    monkeypatch.setitem(mine, "held", plain)
    patches.adapt()
    patches.adapt()
    assert utils.softmax is mine["held"] is plain is not gat.softmax and utils.dropout_edge is not drop
    monkeypatch.setitem(mine, "late", gat.softmax)
    index = torch.tensor([0, 0, 1])
    torch.testing.assert_close(gat.softmax(torch.ones(3), index), torch.tensor([0.5, 0.5, 1.0]))
    assert utils.degree(index).tolist() == [2, 1] and utils.scatter(torch.ones(3), index).tolist() == [2, 1]
    assert any(one.owner == "torch_geometric.nn.conv.gat_conv" and one.name == "softmax" for one in sar.replaced())
    sar.pyg.restore()
    assert gat.softmax is utils.softmax is mine["held"] is mine["late"] is plain and utils.dropout_edge is drop
    assert not any(one.owner.startswith("torch_geometric") for one in sar.replaced())
    monkeypatch.delattr(utils, "homophily")
    with pytest.raises(RuntimeError, match=r"has no torch_geometric.utils.homophily.*patch_pyg = False"):
        patches.adapt()
    assert utils.dropout_edge is drop
    monkeypatch.setattr(sar.Config, "patch_pyg", False)
    patches.adapt()
    assert utils.dropout_edge is drop


def test_imports() -> None:
    """Neither DGL nor torch_geometric is imported before it is needed, and a missing one is named."""
    script = """
import sys
sys.modules["dgl"] = None
import sar
assert sar.pyg.load and "torch_geometric" not in sys.modules
sys.modules["torch_geometric"] = None
for missing in (lambda: sar.pyg.load("nowhere"), lambda: sar.pyg.partition(None, 1, "nowhere")):
    try:
        missing()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.count("pip install 'sar-gnn[pyg]'") == 2
