"""``sar infer``, ``sar evaluate`` and checkpoints with models of PyG, against PyG on the whole graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import sar
from tests.cli import pyg_models_to_infer as models
from tests.support import hetero
from tests.support.command import run_sar
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")

N, E, WORKERS = 120, 700, 2


def run(*words: object) -> str:
    done = run_sar(*words, deadline=240, libraries=True, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _graph() -> Any:
    from torch_geometric.data import Data

    rng = np.random.default_rng(7)
    data = Data(edge_index=torch.from_numpy(rng.integers(0, N, (2, E))), num_nodes=N)
    data.x = torch.from_numpy(rng.standard_normal((N, models.FEATURES)).astype("float32"))
    data.y = torch.from_numpy(rng.integers(0, models.CLASSES, N))
    data.test_mask = torch.arange(N) % 2 == 0
    return data


@pytest.mark.parametrize("kind", ["gat", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("sage", "gin"))])
def test_infer_and_evaluate(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("torchmetrics")
    data = _graph()
    parts = sar.pyg.partition(data, WORKERS, tmp_path / "parts", method="random")
    torch.manual_seed(1)
    model = models.build(kind)
    model(data.x, data.edge_index)  # running statistics of its own
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    with torch.no_grad():
        expected = model.eval()(data.x, data.edge_index)
    words = ["tests.cli.pyg_models_to_infer:build", "--checkpoint", tmp_path / "model.safetensors", "--data", parts]
    words += ["--model-args", json.dumps({"kind": kind})]
    run("infer", *words, "--out", tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected.numpy(), rtol=1e-5, atol=1e-5)
    found = json.loads(run("evaluate", *words, "--json"))
    right = (expected.argmax(1) == data.y)[data.test_mask]
    assert found["test"]["nodes"] == len(right)
    assert found["test"]["accuracy"] == pytest.approx(float(right.float().mean()), abs=1e-6)


def test_infer_on_a_heterograph(tmp_path: Path) -> None:
    from torch_geometric.data import HeteroData

    data = HeteroData()
    for kind, values in hetero.features(3, models.FEATURES).items():
        data[kind].x = torch.from_numpy(values.astype("float32"))
    for triple, ends in hetero.edges().items():
        data[triple].edge_index = torch.from_numpy(np.stack(ends))
    parts = sar.pyg.partition(data, WORKERS, tmp_path / "parts", method="random")
    torch.manual_seed(1)
    model = models.heterogeneous()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    with torch.no_grad():
        expected = model.eval()(data.x_dict, data.edge_index_dict)["paper"]
    words = ["tests.cli.pyg_models_to_infer:heterogeneous", "--checkpoint", tmp_path / "model.safetensors"]
    run("infer", *words, "--data", parts, "--ntype", "paper", "--out", tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_checkpoints(two: Workers, tmp_path: Path) -> None:
    """A run that is stopped and goes on with its checkpoint ends where one ends that was not stopped."""
    data = _graph()
    parts = sar.pyg.partition(data, 2, tmp_path / "parts", method="random")
    once = two.run(models.trained, path=parts, folder=str(tmp_path / "none"), epochs=(0, 4))
    two.run(models.trained, path=parts, folder=str(tmp_path / "checkpoint"), epochs=(0, 2))
    again = two.run(models.trained, path=parts, folder=str(tmp_path / "checkpoint"), epochs=(2, 4))
    for one, other in zip(once, again):
        for key, value in one.items():
            np.testing.assert_array_equal(value, other[key], err_msg=key)
    model: nn.Module = models.build("gat")
    model.load_state_dict({key: torch.from_numpy(value) for key, value in once[0].items()})
