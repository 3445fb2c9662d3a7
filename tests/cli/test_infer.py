"""``sar infer`` and ``sar evaluate`` against DGL and torchmetrics on the whole graph."""

from __future__ import annotations

import importlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import sar
from sar import cli
from sar.inference import forward
from sar.inference.model import Built, build, load
from tests.support import ROOT
from tests.support.command import run_sar
from tests.support.sessions import Workers

dgl = pytest.importorskip("dgl")
models = importlib.import_module("tests.cli.models_to_infer")
cases_infer = importlib.import_module("tests.cli.cases_infer")

N, E = 200, 1500
SPEC = "tests.cli.models_to_infer:build"


def run(*words: object, code: int = 0) -> str:
    """Output of a command, stdout or, where it is to fail, stderr."""
    done = run_sar(*words, deadline=240, libraries=True, OMP_NUM_THREADS="1")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph in 2 parts, and its arrays beside them. Some nodes have no label."""
    folder = tmp_path_factory.mktemp("graph")
    rng = np.random.default_rng(7)
    ends = np.concatenate([rng.integers(0, N, (2, E)), np.arange(N)[None].repeat(2, 0)], 1)
    split = rng.integers(0, 3, N)
    masks = {f"{name}_mask": split == i for i, name in enumerate(("train", "val", "test"))}
    labels = rng.integers(0, models.CLASSES, N)
    labels[::17] = -1
    x = rng.standard_normal((N, models.FEATURES)).astype("float32")
    np.savez(folder / "g.npz", edge_index=ends, x=x, y=labels, **masks)
    for parts in (1, 2, 3):
        partition(folder, parts)
    return folder


def partition(folder: Path, parts: int) -> None:
    run("partition", folder / "g.npz", "--parts", parts, "--method", "random", "--out", folder / f"p{parts}")


def trained(kind: str, path: Path, graph: Path) -> torch.Tensor:
    """Writes a checkpoint with running statistics of its own; the output of DGL on the whole graph."""
    torch.manual_seed(3)
    model = models.build(kind)
    arrays = np.load(graph / "g.npz")
    whole = dgl.graph(tuple(torch.from_numpy(arrays["edge_index"])), num_nodes=N)
    x = torch.from_numpy(arrays["x"])
    for _ in range(3):
        model(whole, x)
    save_file(model.state_dict(), path)
    model.eval()
    with torch.no_grad():
        out: torch.Tensor = model(whole, x)
    return out


def common(graph: Path, checkpoint: Path, parts: int = 2, **arguments: Any) -> list[object]:
    words = ["--checkpoint", checkpoint, "--data", graph / f"p{parts}"]
    return [*words, "--model-args", json.dumps(arguments)] if arguments else words


@pytest.mark.parametrize("kind", ["sage", "gat", pytest.param("gcn", marks=pytest.mark.full)])
def test_equals_dgl_on_the_whole_graph(graph: Path, tmp_path: Path, kind: str) -> None:
    expected = trained(kind, tmp_path / "model.safetensors", graph)
    words = [SPEC, *common(graph, tmp_path / "model.safetensors", kind=kind), "--out", tmp_path / "out.npy"]
    run("infer", *words)
    found = np.load(tmp_path / "out.npy")
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)
    run("infer", *words, "--autocast")
    error = np.linalg.norm(np.load(tmp_path / "out.npy") - found) / np.linalg.norm(found)
    assert 1e-4 < error < 0.03  # of numbers with 8 binary digits


def test_classes_by_id(graph: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    expected = trained("sage", tmp_path / "model.safetensors", graph)
    words = [SPEC, *common(graph, tmp_path / "model.safetensors", 3), "--argmax", "--out", tmp_path / "out.parquet"]
    shown = run("infer", *words)
    assert "the most that a worker held: tensors" in shown
    run("gather", tmp_path / "out.parquet", "-o", tmp_path / "all.parquet")
    table = pq.read_table(tmp_path / "all.parquet").to_pydict()
    assert table == {"id": list(range(N)), "prediction": expected.argmax(1).tolist()}


def test_a_directory_of_checkpoints(graph: Path, tmp_path: Path) -> None:
    """What two workers have trained and saved, in three parts: the last checkpoint, and one by its name."""
    script = ROOT / "tests" / "cli" / "checkpointed.py"
    done = run_sar("launch", "-n", 2, script, graph / "p2" / "g.json", tmp_path / "run", libraries=True)
    assert done.returncode == 0, done.stderr
    one, two = sorted((tmp_path / "run").glob("step-*"))
    for directory, expected in ((tmp_path / "run", two), (one, one)):
        run("infer", SPEC, *common(graph, directory, 3), "--out", tmp_path / "out.npy")
        model = models.build()
        load(model, str(expected))
        arrays = np.load(graph / "g.npz")
        whole = dgl.graph(tuple(torch.from_numpy(arrays["edge_index"])), num_nodes=N)
        with torch.no_grad():
            output = model.eval()(whole, torch.from_numpy(arrays["x"])).numpy()
        np.testing.assert_allclose(np.load(tmp_path / "out.npy"), output, rtol=1e-5, atol=1e-5)
        saved = np.load(tmp_path / f"logits-{int(expected.name[5:17])}.npy")  # of rank 0 as it trained
        found = np.load(tmp_path / "out.npy")[saved[:, 0].astype(int)]
        np.testing.assert_allclose(found, saved[:, 1:], rtol=1e-4, atol=1e-4)
    shown = json.loads(run("evaluate", SPEC, *common(graph, tmp_path / "run", 3), "--json"))
    assert set(shown) == {"train", "val", "test"}


def test_embeddings(graph: Path, tmp_path: Path) -> None:
    trained("gat", tmp_path / "model.safetensors", graph)
    words = [SPEC, *common(graph, tmp_path / "model.safetensors", 2, kind="gat"), "--embeddings", "first"]
    run("infer", *words, "--out", tmp_path / "out.npy")
    model = models.build("gat")
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    arrays = np.load(graph / "g.npz")
    whole = dgl.graph(tuple(torch.from_numpy(arrays["edge_index"])), num_nodes=N)
    with torch.no_grad():
        expected = model.eval().first(whole, torch.from_numpy(arrays["x"]))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_a_hook_calls_the_model(graph: Path, tmp_path: Path) -> None:
    hooked = importlib.import_module("tests.cli.hooked_model")
    model = hooked.build()
    save_file({f"module.{k}": v for k, v in model.state_dict().items()}, tmp_path / "model.safetensors")
    file = ROOT / "tests" / "cli" / "hooked_model.py"
    run("infer", f"{file}:build", *common(graph, tmp_path / "model.safetensors"), "--out", tmp_path / "out.npy")
    arrays = np.load(graph / "g.npz")
    degrees = np.bincount(arrays["edge_index"][1], minlength=N)[:, None]
    with torch.no_grad():
        expected = model(torch.from_numpy(np.concatenate([arrays["x"], degrees.astype("float32")], 1)))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts", [3, *(pytest.param(parts, marks=pytest.mark.full) for parts in (1, 8))])
def test_metrics_are_those_of_the_whole_graph(graph: Path, tmp_path: Path, parts: int) -> None:
    tm = pytest.importorskip("torchmetrics")
    if not (graph / f"p{parts}").exists():
        partition(graph, parts)
    logits = trained("sage", tmp_path / "model.safetensors", graph)
    found = json.loads(run("evaluate", SPEC, *common(graph, tmp_path / "model.safetensors", parts), "--json"))
    arrays = np.load(graph / "g.npz")
    labels = torch.from_numpy(arrays["y"])
    sizes = {"task": "multiclass", "num_classes": models.CLASSES}
    assert list(found) == ["train", "val", "test"]
    for split, values in found.items():
        mask = torch.from_numpy(arrays[f"{split}_mask"]) & (labels >= 0)
        scores, right = logits[mask].softmax(1), labels[mask]
        assert values["nodes"] == int(mask.sum())
        assert values["accuracy"] == float(tm.Accuracy(average="micro", **sizes)(scores, right))
        assert values["f1"] == float(tm.F1Score(average="macro", **sizes)(scores, right))
        assert values["auc"] == pytest.approx(float(tm.AUROC(average="macro", **sizes)(scores, right)), abs=1e-6)
    shown = run("evaluate", SPEC, *common(graph, tmp_path / "model.safetensors", 2), "--metrics", "accuracy")
    assert f"{found['test']['accuracy']:.4f}" in shown and "auc" not in shown


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_metrics_do_not_depend_on_how_nodes_are_split(workers: Workers, task: str) -> None:
    """Some workers have no node of a split, one has no node at all; some nodes have no label."""
    tm = pytest.importorskip("torchmetrics")
    rng = np.random.default_rng(12)
    rows, classes = 90, 1 if task == "binary" else 5
    logits = rng.standard_normal((rows, classes)).astype("float32").round(1)  # with ties
    labels = rng.integers(0, 2, (rows, classes)) if task == "multilabel" else rng.integers(0, max(2, classes), rows)
    labels[::7] = -1
    masks = {"early": np.arange(rows) < 20, "late": np.arange(rows) >= 20, "none": np.zeros(rows, bool)}
    cuts = np.sort(rng.integers(0, rows + 1, workers.world - 1))
    cuts[:1] = 0
    ends = [0, *cuts.tolist(), rows]
    arguments = [
        {"logits": logits[a:b], "labels": labels[a:b], "masks": {name: mask[a:b] for name, mask in masks.items()}}
        for a, b in zip(ends, ends[1:])
    ]
    found, *others = workers.run(cases_infer.evaluated, arguments, wanted=["accuracy", "f1", "auc"])
    sizes = {"task": task, "num_classes": classes, "num_labels": classes}
    if task == "binary":
        sizes = {"task": task}
    known = (labels >= 0).all(1) if task == "multilabel" else labels >= 0
    for split, mask in masks.items():
        chosen = torch.from_numpy(mask & known)
        values = found[split]
        assert values["nodes"] == int(chosen.sum())
        if split == "none":
            assert [values[name] for name in ("accuracy", "f1", "auc")] == [None] * 3
            continue
        x, y = torch.from_numpy(logits)[chosen], torch.from_numpy(labels)[chosen]
        scores = x.softmax(1) if task == "multiclass" else x.sigmoid().view(y.shape)
        assert values["accuracy"] == float(tm.Accuracy(average="micro", **sizes)(scores, y))
        assert values["f1"] == float(tm.F1Score(average="macro", **sizes)(scores, y))
        assert values["auc"] == pytest.approx(float(tm.AUROC(average="macro", **sizes)(scores, y)), abs=1e-6)
        assert all(other[split]["accuracy"] == values["accuracy"] for other in others)


# ---- what is refused --------------------------------------------------------------


def test_refused_before_anything_starts(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({}, tmp_path / "model.safetensors")
    good = ["--checkpoint", str(tmp_path / "model.safetensors"), "--data", str(graph / "p2")]
    out = ["--out", str(tmp_path / "out.npy")]
    cases: list[tuple[list[str], int, str]] = [
        (["infer", SPEC, *good, "--out", str(tmp_path / "out.csv")], 2, "ends in .npy or .parquet"),
        (["infer", SPEC, *good, "--out", str(tmp_path / "none" / "out.npy")], 1, "there is no directory"),
        (["infer", SPEC, *good, *out, "-n", "3"], 2, "holds 2 parts: start one worker for each, with -n 2"),
        (["infer", SPEC, *good, *out, "--nodes", "3"], 2, "2 parts for 3 machines"),
        (["infer", "model", *good, *out], 2, "give MODULE:FUNCTION"),
        (["infer", SPEC, *good[:1], "none.safetensors", *good[2:], *out], 1, "there is no checkpoint none.safetensors"),
        (["infer", SPEC, *good, *out, "--model-args", "{"], 2, "--model-args is not JSON"),
        (["infer", SPEC, *good, *out, "--model-args", "[1]"], 2, "not a JSON object"),
        (["infer", SPEC, *good[:3], str(tmp_path / "none.json"), *out], 1, "none.json"),
        (["evaluate", SPEC, *good, "--metrics", "recall"], 2, "there is no metric 'recall'"),
    ]
    for words, code, message in cases:
        assert cli.main(words) == code, words
        assert message in capsys.readouterr().err


def checkpoints(folder: Path) -> dict[str, Path]:
    """Checkpoints that do not fit, by what is wrong with them."""
    model = models.build()
    state = model.state_dict()
    first = next(iter(state))
    found = {
        "keys": {**{k: v for k, v in state.items() if k != first}, "more": torch.zeros(1)},
        "shapes": {**state, first: torch.zeros(3, 5)},
        "list": [1, 2],
    }
    for name, value in found.items():
        torch.save(value, folder / f"{name}.pt")
    torch.save(model, folder / "whole.pt")
    (folder / "noise.pt").write_bytes(pickle.dumps(nn.Linear)[:20])
    return {path.stem: path for path in folder.glob("*.pt")}


READS_PICKLES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)


def test_what_holds_a_state_dict(tmp_path: Path) -> None:
    """Safetensors by name or by content, torch.save's files, with a dictionary around it or around each name."""
    model, other = models.build(), models.build()
    state = model.state_dict()
    path = tmp_path / "one"
    for save, value in (
        (save_file, state),
        (torch.save, state),
        (torch.save, {"model": state, "epoch": 3}),
        (torch.save, {f"module.{key}": one for key, one in state.items()}),
    ):
        save(value, path)
        if save is torch.save and not READS_PICKLES:
            continue
        nn.init.zeros_(next(other.parameters()))
        load(other, str(path))
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in state.items())


def test_pickles_of_a_torch_that_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(models.build().state_dict(), tmp_path / "model.pt")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(ValueError, match=r"a pickle, and torch 2.5.1\+cpu runs code .*safetensors.torch.save"):
        load(models.build(), str(tmp_path / "model.pt"))


def test_no_pipe_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pt")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    for name, says in (("model.pt", "a regular file, found a named pipe"), ("model.safetensors", "safetensors")):
        with pytest.raises(sar.FormatError, match=f"{tmp_path / name}.*{says}"):
            load(models.build(), str(tmp_path / name))


@pytest.mark.skipif(not READS_PICKLES, reason="torch before 2.6")
@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("keys", "it lacks first.fc_neigh.weight|the model has no more"),
        ("shapes", r"\(3, 5\) in the checkpoint"),
        ("list", r"holds a list: save model.state_dict\(\)"),
        ("whole", "holds more than tensors and plain values"),
        ("noise", "noise.pt"),
    ],
)
def test_checkpoints_that_do_not_fit(tmp_path: Path, checkpoint: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(models.build(), str(checkpoints(tmp_path)[checkpoint]))


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("tests.cli.models_to_infer:nothing", AttributeError, "has no function 'nothing'; there are: .*build"),
        ("tests.cli.no_such:build", ImportError, "No module named"),
        ("none.py:build", FileNotFoundError, "there is no file none.py"),
        ("tests.cli.models_to_infer:not_a_model", TypeError, "returned a str"),
        ("tests.cli.models_to_infer", ValueError, "give MODULE:FUNCTION"),
        (":build", ValueError, "give MODULE:FUNCTION"),
    ],
)
def test_models_that_are_not_there(spec: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        build(spec, {})


def test_what_a_model_is_asked_for() -> None:
    columns = {"a/x": torch.ones(2, 3), "b/x": torch.ones(1, 3).double(), "a/y": torch.ones(2)}
    found: Any = forward.features_of(columns, ["a", "b", "c"], "x", torch.float32)
    assert {kind: (t.dtype, tuple(t.shape)) for kind, t in found.items()} == {
        "a": (torch.float32, (2, 3)),
        "b": (torch.float32, (1, 3)),
    }
    with pytest.raises(ValueError, match="no node has a feature 'colour'; there are: a/x, a/y, b/x"):
        forward.features_of(columns, ["a", "b"], "colour", torch.float32)
    with pytest.raises(ValueError, match="the model has no layer 'third'; there are: first"):
        forward.run(Built(models.build(), None), None, {}, ["a"], "x", "third")
    for out, ntype, kind, message in (
        ({"a": torch.ones(1), "b": torch.ones(1)}, None, ValueError, "rows of node types a, b: name one with --ntype"),
        ({"a": torch.ones(1)}, "c", ValueError, "no rows of node type 'c'; there are: a"),
        ([torch.ones(1)], None, TypeError, "the model returned a list"),
    ):
        with pytest.raises(kind, match=message):
            forward.rows_of(out, ntype)
    assert forward.rows_of({"a": torch.ones(1)}, None)[0] == "a"


@pytest.mark.parametrize(
    ("spec", "more", "message"),
    [
        (SPEC, ["--ntype", "person"], "node type 'person' is unknown"),
        ("tests.cli.models_to_infer:fails_on_one", [], "no model on this rank"),
    ],
)
def test_refused_by_workers(graph: Path, tmp_path: Path, spec: str, more: list[str], message: str) -> None:
    save_file(models.build().state_dict(), tmp_path / "good.safetensors")
    words = [spec, *common(graph, tmp_path / "good.safetensors"), *more]
    errors = run("infer", *words, "--out", tmp_path / "out.npy", code=1)
    assert message in errors
    assert not list(tmp_path.glob("*.npy")) and not list(tmp_path.glob(".*"))


def test_rows_that_are_missing_on_one_worker(graph: Path, tmp_path: Path) -> None:
    save_file(models.one_row().state_dict(), tmp_path / "model.safetensors")
    words = ["tests.cli.models_to_infer:one_row", *common(graph, tmp_path / "model.safetensors")]
    errors = run("infer", *words, "--out", tmp_path / "out.npy", code=1)
    assert "expected (" in errors
    # What rank 0 is told: by the agreement, or by rank 1's end where that overtakes it.
    assert "RemoteError: write_rows failed on rank 1" in errors or "RemoteError: rank 1 on " in errors


# ---- memory -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sage", "gat", "gcn"])
def test_a_worker_holds_input_and_output_of_a_layer(two: Workers, kind: str) -> None:
    """And a tenth of them, besides its share of the graph: of a model whose layers are all of one width."""
    rows, width = 20_000, 256
    rng = np.random.default_rng(9)
    arguments = []
    for rank in range(2):
        dst = np.arange(rank * rows, (rank + 1) * rows).repeat(2)
        start = np.array([0, rows, 2 * rows])
        arguments.append({"part": {"start": start, "src": rng.integers(0, 2 * rows, len(dst)), "dst": dst}})
    both = 2 * rows * width * 4
    for held, difference in two.run(cases_infer.held, arguments, rows=rows, width=width, kind=kind):
        assert difference < 1e-5
        assert both < held < 1.1 * both, f"{held / both:.3f} of input and output"


def test_values_that_somebody_else_holds_are_left_alone(two: Workers) -> None:
    for found in two.run(cases_infer.shared):
        assert found == {"first": True, "second": True, "view": True, "input": True, "kept": True}


def test_features_are_read_when_they_are_wanted(two: Workers) -> None:
    for reads, same, changed in two.run(cases_infer.reread):
        assert (reads, same, changed) == ([1, 1, 2], True, True)
