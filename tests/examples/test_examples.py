"""The example scripts and the demo: what README promises of them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples import several
from tests.examples.conftest import DEADLINE, EXAMPLES, sar, train
from tests.support import ROOT


@pytest.mark.full  # the model and the seeds of tests/parity/test_curves.py
def test_gcn_on_cora_reaches_the_known_accuracy(parts) -> None:
    accuracy = [train("gcn_cora.py", parts("cora", 2), 2, "--seed", seed)["accuracy"]["test"] for seed in range(5)]
    assert sum(accuracy) / len(accuracy) >= 0.805, accuracy


@pytest.mark.full  # the model and the graph of tests/parity/test_curves.py
def test_sage_on_cornell5_does_not_depend_on_the_number_of_workers(parts) -> None:
    words = ["--train-iters", 6, "--every", 3]
    one, three = (train("sage_cornell5.py", parts("cornell5", n), n, *words) for n in (1, 3))
    assert len(one["losses"]) == 6
    assert three["losses"] == pytest.approx(one["losses"], rel=1e-3)
    assert one["sent_bytes"] == 0 < three["sent_bytes"]
    assert three["memory_per_worker"] < 0.6 * one["memory_per_worker"]


@pytest.mark.full  # one of the ways to start in test_examples_scripts.py
def test_gcn_through_torch_distributed_and_an_address_file(parts, tmp_path: Path) -> None:
    words = ["--train-iters", 2, "--every", 2, "--backend", "gloo", "--ip-file", tmp_path / "ip"]
    assert len(train("gcn_cora.py", parts("cora", 2), 2, *words)["losses"]) == 2


@pytest.mark.parametrize(("second", "code"), [(1.0, 0), (1.01, 1), (float("nan"), 1)])
def test_the_demo_fails_where_curves_disagree(
    second: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    demo = importlib.import_module("demo")
    monkeypatch.setattr(demo, "WORK", str(tmp_path))

    def trained(script: str, graph: str, workers: int, *words: str) -> dict:
        losses = [1.5, second if workers == 2 else 1.0]
        return {
            "workers": workers,
            "losses": losses,
            "epoch_seconds": 0.1,
            "accuracy": {"test": 0.5},
            "memory_per_worker": 1 << 20,
            "memory": [1 << 20, 1 << 20],
            "sent_bytes": 0,
        }

    monkeypatch.setattr(demo, "train", trained)
    assert demo.main() == code
    assert "largest difference" in capsys.readouterr().out


# script, graph, the least test accuracy in percent; chance and the largest class are well below. And epochs after which
# the script is half as good at least.
COPIED = {
    "gat.py": ("cora", 78.0, 10),
    "custom_message.py": ("cora", 72.0, 14),
    "graphsage.py": ("cora", 60.0, 5),
    "rgcn.py": ("papers", 75.0, 5),
    "pyg_gat.py": ("cora", 78.0, 7),
    "pyg_jumping.py": ("cora", 65.0, 6),
    "pyg_hetero.py": ("papers", 75.0, 5),
    "pyg_link_pred.py": ("links", 85.0, 5),
}
if not importlib.util.find_spec("torch_geometric"):
    COPIED = {script: case for script, case in COPIED.items() if not script.startswith("pyg_")}


@pytest.fixture(scope="module", params=["few", pytest.param("all", marks=pytest.mark.full)])
def shown(request: pytest.FixtureRequest, parts, tmp_path_factory) -> tuple[dict[str, str], float]:
    """What the scripts of ``COPIED`` print, run one after the other by the same two workers, for a few epochs or all;
    and which part of their accuracy they must have."""
    jobs = []
    for script, (graph, _, epochs) in COPIED.items():
        path = EXAMPLES / script
        if request.param == "few":
            path = tmp_path_factory.mktemp("few") / script
            several.shorter(EXAMPLES / script, path, epochs, every=epochs)
        jobs.append((path, [parts(graph, 2)]))
    texts = sar("launch", "-n", 2, *several.command(*jobs)).split("[0] == ")[1:]
    return dict(zip(COPIED, texts)), 0.5 if request.param == "few" else 1.0


@pytest.mark.parametrize("script", COPIED)
def test_scripts_to_copy_learn(shown: tuple[dict[str, str], float], script: str) -> None:
    texts, part = shown
    assert texts[script].partition("\n")[0].endswith(script)
    found = re.findall(r"test ([\d.]+) %", texts[script])
    assert found and float(found[-1]) >= part * COPIED[script][1], texts[script]


@pytest.mark.full  # the script learns on Cora above
def test_graphsage_learns_on_cornell5(parts) -> None:
    found = re.findall(r"test ([\d.]+) %", sar("launch", "-n", 2, EXAMPLES / "graphsage.py", parts("cornell5", 2)))
    assert found and float(found[-1]) >= 60.0


@pytest.mark.full  # test_documentation.py runs it
def test_gcn_learns(parts) -> None:
    found = re.findall(r"test ([\d.]+) %", sar("launch", "-n", 2, EXAMPLES / "gcn.py", parts("cora", 2)))
    assert found and float(found[-1]) >= 79.0


@pytest.mark.skipif(not shutil.which("go"), reason="needs Go")
@pytest.mark.parametrize(
    ("model", "epochs", "least"),
    [
        ("gcn", 30, 70.0),
        ("gat", 30, 70.0),
        pytest.param("gcn", 200, 80.0, marks=pytest.mark.full),
        pytest.param("gat", 200, 79.0, marks=pytest.mark.full),
    ],
)
def test_go_example(model: str, epochs: int, least: float) -> None:
    """Two processes without Python, on Cora: the accuracy of the scripts."""
    done = subprocess.run(
        ["go", "run", "./examples/go", "-model", model, "-epochs", str(epochs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={"GOTOOLCHAIN": "auto", **os.environ, "GOEXPERIMENT": "simd"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"test ([\d.]+) %", done.stdout)
    assert found and float(found[-1]) >= least, done.stdout


@pytest.mark.skipif(not (shutil.which("go") and shutil.which("cc")), reason="needs Go and a C compiler")
def test_c_example() -> None:
    done = subprocess.run(
        ["make", "-s", "-C", str(ROOT), "examples-c"], capture_output=True, text=True, timeout=DEADLINE, env=os.environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for transport in ("tcp", "sockets"):
        assert f"aggregate: OK, 3 workers over {transport}" in done.stdout
