"""The scripts of examples/more: that they start in every way they promise, learn, and agree where modes must agree."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sar.distributed.network import free_port
from tests.examples import several
from tests.examples.conftest import DEADLINE, EXAMPLES, run, sar, train
from tests.support import warm
from tests.support.command import run_sar

MORE = EXAMPLES / "more"


# Run one after the other by the same two workers: script, graph, arguments. The first says whether it imported DGL.
ADVANCED = ["--gnn-layer", "gat", "--train-iters", 4, "--layer-dim", 8, "--n-layers", 2]
SIGN = ["--train-iters", 3, "--hidden-layer-dim", 16]
TYPED = ["--train-iters", 5, "--dropout", 0]
ONE_SHOT = ["--train-mode", "one_shot_aggregation", "--construct-mfgs", "--max-collective-size", 100]
SEVERAL: dict[str, tuple[str, str, list[Any]]] = {
    "gat_without_dgl": ("gat_without_dgl.py", "cora", ["--train-iters", 3]),
    "gcn": ("gcn_cora.py", "cora", ["--train-iters", 3]),
    "sage": ("sage_cornell5.py", "cora", ["--train-iters", 3]),
    "appnp": ("appnp.py", "cora", ["--train-iters", 3]),
    "sign": ("sign.py", "cora", SIGN),
    "correct_and_smooth": ("correct_and_smooth.py", "cora", ["--train-iters", 3]),
    "sampling": ("sampling_cornell5.py", "cora", ["--train-iters", 3]),
    "advanced": ("homogeneous_advanced.py", "cora", ADVANCED),
    "advanced, blocks": ("homogeneous_advanced.py", "cora", [*ADVANCED, "--train-mode", "SAR", "--construct-mfgs"]),
    "advanced, SA": ("homogeneous_advanced.py", "cora", [*ADVANCED, "--train-mode", "SA"]),
    "advanced, one shot": ("homogeneous_advanced.py", "cora", [*ADVANCED, *ONE_SHOT]),
    "rgcn": ("rgcn_hetero.py", "papers", TYPED),
    "rgcn, blocks": ("rgcn_hetero.py", "papers", [*TYPED, "--construct-mfgs"]),
}


@pytest.fixture(scope="module")
def trained(parts: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The results of each."""
    folder = tmp_path_factory.mktemp("results")
    jobs = []
    for name, (script, graph, words) in SEVERAL.items():
        given = ["--partitioning-json-file", parts(graph, 2), "--results", folder / f"{name}.json", "--every", 3]
        jobs.append((MORE / script, [*given, *words]))
    sar("launch", "-n", 2, *several.command(*jobs), libraries=False)  # one of them tells whether it imported DGL
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in SEVERAL}


@pytest.mark.parametrize("name", SEVERAL)
def test_script_trains(trained: dict[str, dict[str, Any]], name: str) -> None:
    results = trained[name]
    assert results["losses"][-1] < results["losses"][0]
    assert set(results["accuracy"]) == {"train", "val", "test"} and results["sent_bytes"] > 0
    if name == "gat_without_dgl":
        assert results["dgl_imported"] is False


def test_every_script_is_run() -> None:
    """At least, some test here names it."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    scripts = {path.name for path in MORE.glob("*.py")} - {"common.py"}
    assert scripts and not [name for name in scripts if f'"{name}"' not in tests]


def test_modes_agree(trained: dict[str, dict[str, Any]]) -> None:
    """Losses of attention in every mode, on the full graph and on blocks."""
    for mode in ("blocks", "SA", "one shot"):
        again = trained[f"advanced, {mode}"]["losses"]
        assert again == pytest.approx(trained["advanced"]["losses"], rel=1e-4), mode


def test_rgcn_on_blocks_agrees_with_the_full_graph(trained: dict[str, dict[str, Any]]) -> None:
    full, blocks = trained["rgcn"], trained["rgcn, blocks"]
    assert blocks["losses"] == pytest.approx(full["losses"], rel=1e-4)
    assert blocks["sent_bytes"] < full["sent_bytes"]


# script, graph, iterations, the least test accuracy; chance and the largest class are well below
LEARNED = [
    ("appnp.py", "citeseer", 60, 0.62),
    ("sign.py", "cora", 40, 0.70),
    ("gat_without_dgl.py", "cora", 50, 0.72),
    ("rgcn_hetero.py", "papers", 30, 0.80),
    ("sampling_cornell5.py", "cora", 30, 0.70),
]


@pytest.mark.full  # that scripts learn, those of test_examples.py show
@pytest.mark.parametrize(
    ("script", "graph", "iterations", "least"), LEARNED, ids=lambda v: v if ".py" in str(v) else ""
)
def test_script_learns(parts: Any, script: str, graph: str, iterations: int, least: float) -> None:
    results = train(script, parts(graph, 2), 2, "--train-iters", iterations, "--every", iterations)
    assert results["accuracy"]["test"] >= least


@pytest.mark.full
def test_correct_and_smooth_gains(parts: Any) -> None:
    results = train("correct_and_smooth.py", parts("cora", 2), 2, "--train-iters", 40, "--every", 40)
    assert results["test_accuracy_before"] < 0.65
    assert results["accuracy"]["test"] > results["test_accuracy_before"] + 0.1


def losses(text: str) -> list[str]:
    return re.findall(r"loss ([\d.]+)", text)


def by_hand(script: Path, words: list[str], names: tuple[str, str], env: dict[str, str]) -> str:
    """Two workers, each started by hand."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = []
    for rank in range(2):
        own = {**os.environ, names[0]: str(rank), names[1]: "2", **env}
        processes.append(warm.Popen([str(script), *words], env=own, **pipes))
    texts = [process.communicate(timeout=DEADLINE)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    return texts[0]


def test_ways_to_start(parts: Any, trained: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """sar launch, RANK and WORLD_SIZE, PMI_RANK and PMI_SIZE with an address file: the same losses. test_lifecycle.py
    has torchrun."""
    words = ["--partitioning-json-file", str(parts("cora", 2)), "--train-iters", "3", "--hidden-layer-dim", "16"]
    basic = MORE / "homogeneous_basic.py"

    def port() -> dict[str, str]:
        return {"MASTER_PORT": str(free_port())}

    launched = run_sar("launch", "-n", 2, basic, *words)
    assert launched.returncode == 0, launched.stderr
    first = losses(launched.stdout)
    assert len(first) == 3
    assert losses(by_hand(basic, words, ("RANK", "WORLD_SIZE"), {"MASTER_ADDR": "127.0.0.1", **port()})) == first

    words = ["--partitioning-json-file", str(parts("cora", 2)), "--every", "3", *map(str, SIGN)]
    address = ["--ip-file", str(tmp_path / "ip"), "--backend", "gloo", "--cpu-run"]
    second = losses(by_hand(MORE / "sign.py", [*words, *address], ("PMI_RANK", "PMI_SIZE"), port()))
    assert second == [f"{trained['sign']['losses'][-1]:.4f}"]


def test_training_that_goes_on(parts: Any, tmp_path: Path) -> None:
    """Two workers, then three from where they stopped: the losses of two alone."""
    script = MORE / "checkpoints.py"

    def run(workers: int, directory: str, epochs: int) -> str:
        return sar("launch", "-n", workers, script, parts("cora", workers), tmp_path / directory, epochs)

    whole = losses(run(2, "whole", 20))
    assert losses(run(2, "run", 10)) == whole[:1]
    shown = run(3, "run", 20)
    assert "3 workers begin with epoch 11" in shown
    assert [float(loss) for loss in losses(shown)] == pytest.approx([float(loss) for loss in whole[1:]], rel=1e-4)


def test_partitioning_a_dataset(tmp_path: Path) -> None:
    """An .npz file and a file of dgl.save_graphs give the same nodes and edges."""
    import dgl
    import torch

    source = EXAMPLES / "data" / "citeseer.npz"
    arrays = np.load(source)
    edge_index = torch.from_numpy(arrays["edge_index"].astype("int64"))
    n = len(arrays["y"])
    graph = dgl.graph((edge_index[0], edge_index[1]), num_nodes=n)
    graph.ndata["label"] = torch.from_numpy(arrays["y"].astype("int64"))
    dgl.save_graphs(str(tmp_path / "citeseer.bin"), [graph])
    for name in (source, tmp_path / "citeseer.bin"):
        out = tmp_path / name.suffix[1:]
        words = ["--num-partitions", 2, "--partition-out-path", out, "--self-loops"]
        run("partition_dataset.py", "--dataset-name", name, *words)
        shown = sar("info", out / "citeseer.json")
        assert f"{n:,}" in shown and "labels" in shown
    failed = warm.run([str(MORE / "partition_dataset.py"), "--dataset-name", "nothing", *map(str, words)])
    assert failed.returncode != 0 and "there is no file nothing" in failed.stderr


def test_distdgl_then_sar(parts: Any) -> None:
    path = parts("cora", 1)
    words = ["--graph-name", "cora", "--part-config", path, "--num-epochs", 15, "--num-hidden", 16]
    text = run("distdgl_sar_inference.py", *words, MASTER_PORT=str(free_port()))
    found = re.search(r"accuracy: val ([\d.]+) %, test ([\d.]+) %", text)
    assert found and float(found.group(2)) > 65, text


def test_predictions_by_id(parts: Any, tmp_path: Path) -> None:
    """From training to a table of predictions, a page about the run, and metrics of the checkpoint."""
    pq = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("torchmetrics")
    path, script = parts("cora", 2), MORE / "predictions.py"
    words = ["--partitioning-json-file", path, "--train-iters", 8, "--every", 8, "--lr", 0.02, "--out", tmp_path]
    shown = sar("launch", "-n", 2, script, *words)
    sar("gather", tmp_path / "predictions.parquet", "-o", tmp_path / "all.parquet")
    table = pq.read_table(tmp_path / "all.parquet")
    assert table.column_names == ["id", "prediction", "probability"]
    assert table.column("id").to_pylist() == list(range(2708))
    arrays = np.load(EXAMPLES / "data" / "cora.npz")
    right = np.mean((table.column("prediction").to_numpy() == arrays["y"])[arrays["test_mask"]])
    assert right > 0.3, shown
    sar("report", tmp_path / "run", "-o", tmp_path / "report.html")
    assert "accuracy" in (tmp_path / "report.html").read_text()
    model = ["--checkpoint", tmp_path / "model.safetensors", "--data", path, "--features", "features"]
    sizes = json.dumps({"n_features": arrays["x"].shape[1], "n_classes": 7})
    found = json.loads(sar("evaluate", f"{script}:build", *model, "--model-args", sizes, "--json"))
    assert found["test"]["accuracy"] == pytest.approx(right, abs=0.01)
