"""The scripts of examples/more: that they start in every way they promise, learn, and agree where modes must agree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sar.distributed.network import free_port
from tests.support import ROOT

EXAMPLES = ROOT / "examples" / "more"
DEADLINE = 120.0


def run(*words: object, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function (graph, parts) that gives the path of the description, and partitions where that was not done."""
    folder = tmp_path_factory.mktemp("parts")

    def get(graph: str, count: int) -> Path:
        path: Path = folder / f"{graph}{count}" / f"{graph}.json"
        source = ROOT / "examples" / "data" / f"{graph}.npz"
        loops = ["--self-loops"]
        if graph == "papers":
            source, loops = folder / "papers.npz", []
            run(EXAMPLES / "generate_hetero.py", source)
        if not path.exists():
            run("-m", "sar", "partition", source, "--parts", count, "--out", path.parent, *loops)
        return path

    return get


def train(script: str, path: Path, workers: int, *words: object) -> dict[str, Any]:
    results = path.parent / "results.json"
    results.unlink(missing_ok=True)
    given = ["--partitioning-json-file", path, "--results", results, *words]
    text = run("-m", "sar", "launch", "-n", workers, EXAMPLES / script, *given)
    assert "accuracy: train" in text
    return json.loads(results.read_text())


# script, graph, iterations, the least test accuracy; chance and the largest class are well below
LEARNED = [
    ("appnp.py", "citeseer", 60, 0.62),
    ("sign.py", "cora", 40, 0.70),
    ("gat_without_dgl.py", "cora", 50, 0.72),
    ("rgcn_hetero.py", "papers", 30, 0.80),
    ("sampling_cornell5.py", "cora", 30, 0.70),
]


@pytest.mark.parametrize(
    ("script", "graph", "iterations", "least"), LEARNED, ids=lambda v: v if ".py" in str(v) else ""
)
def test_script_learns(parts: Any, script: str, graph: str, iterations: int, least: float) -> None:
    results = train(script, parts(graph, 2), 2, "--train-iters", iterations, "--every", iterations)
    assert results["accuracy"]["test"] >= least
    assert results["sent_bytes"] > 0
    if script == "gat_without_dgl.py":
        assert results["dgl_imported"] is False


def test_correct_and_smooth_gains(parts: Any) -> None:
    results = train("correct_and_smooth.py", parts("cora", 2), 2, "--train-iters", 40, "--every", 40)
    assert results["test_accuracy_before"] < 0.65
    assert results["accuracy"]["test"] > results["test_accuracy_before"] + 0.1


def test_modes_agree(parts: Any) -> None:
    """Losses of attention in every mode, on the full graph and on blocks."""
    words = ["--gnn-layer", "gat", "--train-iters", 4, "--every", 4, "--layer-dim", 8, "--n-layers", 2]
    first = train("homogeneous_advanced.py", parts("cora", 2), 2, *words)["losses"]
    assert first[-1] < first[0]
    blocks = "--construct-mfgs"
    for mode, *more in [("SAR", blocks), ("SA",), ("one_shot_aggregation", blocks, "--max-collective-size", 100)]:
        again = train("homogeneous_advanced.py", parts("cora", 2), 2, *words, "--train-mode", mode, *more)["losses"]
        assert again == pytest.approx(first, rel=1e-4), (mode, more)


def test_rgcn_on_blocks_agrees_with_the_full_graph(parts: Any) -> None:
    words = ["--train-iters", 5, "--every", 5, "--dropout", 0]
    full = train("rgcn_hetero.py", parts("papers", 2), 2, *words)
    blocks = train("rgcn_hetero.py", parts("papers", 2), 2, *words, "--construct-mfgs")
    assert blocks["losses"] == pytest.approx(full["losses"], rel=1e-4)
    assert blocks["sent_bytes"] < full["sent_bytes"]


def losses(text: str) -> list[str]:
    return re.findall(r"loss ([\d.]+)", text)


def by_hand(script: Path, words: list[str], names: tuple[str, str], env: dict[str, str]) -> str:
    """Two workers, each started by hand."""
    processes = []
    for rank in range(2):
        own = {**os.environ, "OMP_NUM_THREADS": "1", names[0]: str(rank), names[1]: "2", **env}
        command = [sys.executable, str(script), *words]
        processes.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own)
        )
    texts = [process.communicate(timeout=DEADLINE)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    return texts[0]


def test_ways_to_start(parts: Any, tmp_path: Path) -> None:
    """sar launch, torchrun, RANK and WORLD_SIZE, PMI_RANK and PMI_SIZE with an address file: the same losses."""
    words = ["--partitioning-json-file", str(parts("cora", 2)), "--train-iters", "3", "--hidden-layer-dim", "16"]
    basic, framed = EXAMPLES / "homogeneous_basic.py", EXAMPLES / "sign.py"
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port"]

    def port() -> dict[str, str]:
        return {"MASTER_PORT": str(free_port())}

    first = losses(run("-m", "sar", "launch", "-n", 2, basic, *words))
    assert len(first) == 3
    assert losses(run(*torchrun, free_port(), basic, *words)) == first
    assert losses(by_hand(basic, words, ("RANK", "WORLD_SIZE"), port())) == first

    words += ["--every", "3"]
    second = losses(run(*torchrun, free_port(), framed, *words))
    assert len(second) == 1
    address = ["--ip-file", str(tmp_path / "ip"), "--backend", "gloo", "--cpu-run"]
    assert losses(by_hand(framed, [*words, *address], ("PMI_RANK", "PMI_SIZE"), port())) == second


def test_partitioning_a_dataset(tmp_path: Path) -> None:
    """An .npz file and a file of dgl.save_graphs give the same nodes and edges."""
    import dgl
    import torch

    source = ROOT / "examples" / "data" / "citeseer.npz"
    arrays = np.load(source)
    edge_index = torch.from_numpy(arrays["edge_index"].astype("int64"))
    n = len(arrays["y"])
    graph = dgl.graph((edge_index[0], edge_index[1]), num_nodes=n)
    graph.ndata["label"] = torch.from_numpy(arrays["y"].astype("int64"))
    dgl.save_graphs(str(tmp_path / "citeseer.bin"), [graph])
    for name in (source, tmp_path / "citeseer.bin"):
        out = tmp_path / name.suffix[1:]
        words = ["--num-partitions", 2, "--partition-out-path", out, "--self-loops"]
        run(EXAMPLES / "partition_dataset.py", "--dataset-name", name, *words)
        shown = run("-m", "sar", "info", out / "citeseer.json")
        assert f"{n:,}" in shown and "labels" in shown
    failed = subprocess.run(
        [sys.executable, str(EXAMPLES / "partition_dataset.py"), "--dataset-name", "nothing", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert failed.returncode != 0 and "there is no file nothing" in failed.stderr


def test_distdgl_then_sar(parts: Any) -> None:
    path = parts("cora", 1)
    words = ["--graph-name", "cora", "--part-config", path, "--num-epochs", 15, "--num-hidden", 16]
    text = run(EXAMPLES / "distdgl_sar_inference.py", *words, env={"MASTER_PORT": str(free_port())})
    found = re.search(r"accuracy: val ([\d.]+) %, test ([\d.]+) %", text)
    assert found and float(found.group(2)) > 65, text
