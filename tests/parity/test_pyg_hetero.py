"""Heterographs of PyG: models against PyG on the whole graph, and data from partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sar
from tests.parity import cases_pyg_hetero as cases
from tests.parity.test_pyg_layers import UNIT, near
from tests.support import hetero, warm
from tests.support.command import run_sar
from tests.support.hetero import KINDS, TRIPLES
from tests.support.sessions import Workers, half

pytest.importorskip("torch_geometric")


def _held(cut: hetero.Cut, ends: Any, rank: int) -> np.ndarray:
    """Positions of the edges that have columns, in a worker's order: by the owner of their source."""
    triple = cases.EDGES_WITH_COLUMNS
    held = cut.held(triple, ends, rank)
    return held[np.argsort(cut.owner[triple[0]][ends[triple][0][held]], kind="stable")]


def check(workers: Workers, name: str, dtype: str) -> None:
    ends, cut = hetero.edges(), hetero.Cut(workers.world, seed=4)
    x = hetero.features(8)
    columns = np.random.default_rng(9).standard_normal((len(ends[cases.EDGES_WITH_COLUMNS][0]), cases.WIDTH))
    whole = {triple: torch.from_numpy(np.stack(ends[triple])) for triple in TRIPLES}
    truth = cases.step(name, whole, x, columns, "float64")
    held = [_held(cut, ends, rank) for rank in range(workers.world)]

    def own(values: dict[str, np.ndarray], rank: int) -> dict[str, np.ndarray]:
        return {kind: value[cut.rows(kind, rank)] for kind, value in values.items()}

    given = [
        {
            "part": cut.part(rank, ends),
            "x": own(x, rank),
            "columns": columns[held[rank]],
            "grads": own(truth["grads"], rank),
        }
        for rank in range(workers.world)
    ]
    found = workers.run(cases.layer, given, name=name, state=truth["state"], dtype=dtype)
    unit = UNIT[dtype]
    for rank, one in enumerate(found):
        assert sorted(one["out"]) == sorted(truth["out"])
        for kind, value in own(truth["out"], rank).items():
            near(one["out"][kind], value, unit, f"{kind} of rank {rank}")
        for kind, value in own(truth["x"], rank).items():
            near(one["x"][kind], value, unit, f"gradient of {kind}, rank {rank}")
        near(one["edges"], truth["edges"][held[rank]], unit, f"gradient of edges, rank {rank}")
    for key, value in truth["parameters"].items():
        near(sum(one["parameters"][key] for one in found), value, unit, f"gradient of {key}")


@pytest.mark.parametrize("name", cases.MODELS)
def test_model(few: Workers, name: str) -> None:
    """Results and all gradients in double precision. Of 4 workers one owns no node, of 2 one no venue."""
    check(few, name, "float64")


@pytest.mark.parametrize("name", half(cases.MODELS))
def test_single_precision(two: Workers, name: str) -> None:
    check(two, name, "float32")


def test_refused(two: Workers) -> None:
    ends, cut = hetero.edges(), hetero.Cut(2, seed=4)
    for said in two.run(cases.refused, [{"part": cut.part(rank, ends)} for rank in range(2)]):
        for text, part in zip(
            said,
            ["before it is partitioned", "needs the edges of the whole graph", "one node type and one relation"]
            + ["a row for each node that this worker owns", "several relations", "split over workers already"],
            strict=True,
        ):
            assert part in text


def _graph() -> tuple[Any, dict[Any, Any]]:
    """A HeteroData, and its edges. Its types are in an order that is no alphabet's."""
    from torch_geometric.data import HeteroData

    ends, x = hetero.edges(few=False), hetero.features(8)
    data = HeteroData()
    for kind in ("paper", "author", "venue", "field"):
        if kind == "field":
            data[kind].num_nodes = len(x[kind])
        else:
            data[kind].x = torch.from_numpy(x[kind].astype("float32"))
    data["paper"].train_mask = torch.arange(KINDS["paper"]) % 3 == 0
    data["paper"].y = torch.arange(KINDS["paper"])
    for triple in reversed(TRIPLES):
        data[triple].edge_index = torch.from_numpy(np.stack(ends[triple]))
    data["paper", "cites", "paper"].w = torch.arange(len(ends["paper", "cites", "paper"][0]), dtype=torch.float32)
    return data, ends


@pytest.mark.parametrize("by", ["sar", "dgl"])
def test_loaded(few: Workers, tmp_path: Path, by: str) -> None:
    """Partitions of :func:`sar.pyg.partition`, with types in the order that the user gave them, and of DGL's
    partitioner, which sorts them: columns, original ids, a layer."""
    import torch_geometric.nn as nn

    data, ends = _graph()
    parts = tmp_path / "parts"
    node_types, edge_types = data.metadata()
    if by == "sar":
        path = sar.pyg.partition(data, few.world, parts, name="mag", method="random", seed=3)
        assert path == str(parts / "mag.json")
    else:
        path = _by_dgl(data, few.world, parts)
        node_types, edge_types = list(KINDS), TRIPLES
    torch.manual_seed(7)
    layers = {triple: nn.SAGEConv((6, 6), 2, bias=False) for triple in edge_types if "field" not in triple}
    out = nn.HeteroConv(layers)(data.x_dict, data.edge_index_dict)
    found = few.run(cases.loaded, path=path)
    for kind, count in KINDS.items():
        ids = np.concatenate([one["nodes"][kind]["n_id"] for one in found])
        assert sorted(ids.tolist()) == list(range(count))
    for one in found:
        assert one["metadata"] == (node_types, edge_types) and "n_id" in one["repr"]
        for kind in KINDS:
            columns = one["nodes"][kind]
            ids = columns["n_id"]
            assert columns["num_nodes"] == len(ids) and ("x" in columns) == (kind != "field")
            if kind != "field":
                np.testing.assert_array_equal(columns["x"], data[kind].x[ids])
        paper = one["nodes"]["paper"]
        assert paper["train_mask"].dtype == bool
        np.testing.assert_array_equal(paper["train_mask"], data["paper"].train_mask[paper["n_id"]])
        np.testing.assert_array_equal(paper["y"], paper["n_id"])
        for triple, edges in one["edges"].items():
            into = np.isin(ends[triple][1], one["nodes"][triple[2]]["n_id"])
            assert edges["size"] == [2, int(into.sum())]
            assert edges["columns"] == (["w"] if triple[1] == "cites" else [])
        for kind, value in one["out"].items():
            near(value, out[kind].detach().numpy()[one["nodes"][kind]["n_id"]], 1e-5, kind)
    assert sum(one["weights"] for one in found) == pytest.approx(float(data["paper", "cites", "paper"].w.sum()))


@pytest.mark.parametrize("by", ["partition", "ingest"])
def test_trained_from_the_same_weights(few: Workers, tmp_path: Path, by: str) -> None:
    """A model built from the metadata of parts has the weights and losses of one built from the user's."""
    data, _ = _graph()
    del data["field"]  # HGTConv wants columns of every type
    for triple in [t for t in data.edge_types if "field" in t]:
        del data[triple]
    if by == "partition":
        path = sar.pyg.partition(data, few.world, tmp_path / "parts", name="mag", method="random", seed=3)
    else:
        pytest.importorskip("duckdb")
        sar.ingest(data, out=str(tmp_path / "graph"))
        done = run_sar("partition", tmp_path / "graph", "--parts", few.world, "--method", "random", "--out", tmp_path)
        assert done.returncode == 0, done.stderr
        path = str(tmp_path / "graph.json")
    plain = cases.trained(data, data["paper"].num_nodes)
    found = few.run(cases.trained_on_parts, path=path, nodes=data["paper"].num_nodes)
    for one in found:
        assert list(one["weights"]) == list(plain["weights"])
        for name, value in plain["weights"].items():
            np.testing.assert_array_equal(one["weights"][name], value, err_msg=name)
    np.testing.assert_allclose(sum(one["losses"] for one in found), plain["losses"], rtol=1e-10)
    assert plain["losses"][-1] < 0.9 * plain["losses"][0]


def _by_dgl(data: Any, parts: int, out: Path) -> str:
    dgl = pytest.importorskip("dgl")
    edges = {triple: tuple(data[triple].edge_index) for triple in data.edge_types}
    graph = dgl.heterograph(edges, num_nodes_dict={kind: data[kind].num_nodes for kind in data.node_types})
    for kind in data.node_types:
        for name in ("x", "y", "train_mask"):
            if name in data[kind]:
                graph.nodes[kind].data[name] = data[kind][name]
        graph.nodes[kind].data["orig_id"] = torch.arange(data[kind].num_nodes)
    graph.edges["paper", "cites", "paper"].data["w"] = data["paper", "cites", "paper"].w
    dgl.seed(0)  # DGL fails where a part has no node of a type
    dgl.distributed.partition_graph(graph, "mag", parts, str(out), part_method="random")
    return str(out / "mag.json")


def test_partition_of_one_type(tmp_path: Path) -> None:
    """Errors before anything is written, and what stands in the way."""
    from torch_geometric.data import Data, HeteroData

    data = Data(x=torch.rand(4, 2), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    for kwargs, kind, text in (
        ({"parts": 0}, ValueError, "1 or more parts"),
        ({"parts": 5}, ValueError, "more than the 4 nodes"),
        ({"method": "best"}, ValueError, "give one of mtkahypar"),
        ({"name": "a/b"}, ValueError, "plain file name"),
        ({"data": data.x}, TypeError, "got a Tensor"),
        ({"data": Data(x=data.x)}, ValueError, "no edge_index"),
    ):
        with pytest.raises(kind, match=text):
            sar.pyg.partition(**{"data": data, "parts": 2, "out": tmp_path / "no", **kwargs})  # type: ignore[arg-type]
    alone = HeteroData()
    alone["a"].num_nodes = alone["b"].num_nodes = 3
    alone["a", "to", "a"].edge_index = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match="nodes of type b"):
        sar.pyg.partition(alone, 1, tmp_path / "no")
    data.edge_index = data.edge_index + 1
    with pytest.raises(sar.FormatError, match="4"):
        sar.pyg.partition(data, 2, tmp_path / "no")
    data.edge_index = data.edge_index - 1
    sar.pyg.partition(data, 2, tmp_path / "parts", method="contiguous")
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["graph.json", "part0", "part1"]
    with pytest.raises(RuntimeError, match=r"parts of another graph \(graph.json\)"):
        sar.pyg.partition(data, 2, tmp_path / "parts", name="other")


ALONE = """
import sys
sys.modules["dgl"] = None
import torch, torch_geometric.nn as nn
from torch_geometric.data import Data, HeteroData
import sar
whole = Data(x=torch.rand(9, 3), edge_index=torch.randint(9, (2, 40)))
typed = HeteroData({"a": {"x": torch.rand(5, 3)}, "b": {"x": torch.rand(9, 3)}})
typed["a", "to", "b"].edge_index = torch.stack([torch.randint(5, (20,)), torch.randint(9, (20,))])
paths = [sar.pyg.partition(graph, 1, f"{sys.argv[1]}/{n}") for n, graph in enumerate((whole, typed))]
sar.initialize_comms(0, 1, "127.0.0.1")
data = sar.pyg.load(paths[0])
layer = nn.GATConv(3, 2)
torch.testing.assert_close(layer(data.x, data.edge_index)[data.n_id.argsort()], layer(whole.x, whole.edge_index))
data, layer = sar.pyg.load(paths[1]), nn.HGTConv(3, 4, typed.metadata(), 2)
found, truth = (layer(d.x_dict, d.edge_index_dict)["b"] for d in (data, typed))
torch.testing.assert_close(found[data["b"].n_id.argsort()], truth)
assert not any(name.split(".")[0] == "dgl" and module for name, module in sys.modules.items())
print("as the whole graph")
"""


def test_without_dgl(tmp_path: Path) -> None:
    """Cut, load and run where DGL cannot be imported."""
    done = warm.run(["-c", ALONE, str(tmp_path)])
    assert done.returncode == 0 and "as the whole graph" in done.stdout, done.stderr
