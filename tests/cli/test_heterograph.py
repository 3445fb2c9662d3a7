"""A graph of several types all the way: tables, parts, training, inference, and results under the users' ids."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.data.graphs import write_table
from tests.support import ROOT
from tests.support.command import run_sar

dgl = pytest.importorskip("dgl")
pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")
model = importlib.import_module("tests.cli.hetero_model")

PAPERS, AUTHORS = 90, 40
SCHEMA = """\
nodes:
  paper: {files: papers.csv, id: doi, features: "w*", label: topic, split: split}
  author: {files: authors.parquet, id: number, features: vector}
edges:
  paper:cites:paper: {files: cites.csv, symmetrize: true}
  author:wrote:paper: {files: wrote.parquet, source: author, target: paper}
  paper:written by:author: {files: wrote.parquet, source: paper, target: author}
"""


class Tables:
    """The tables, and the same graph for DGL."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(4)
        self.ids = {
            "paper": [f"10.1000/{n:03d}" for n in rng.permutation(PAPERS)],
            "author": rng.choice(10**12, AUTHORS, replace=False).tolist(),
        }
        topic = rng.integers(0, model.CLASSES, PAPERS)
        words = (rng.standard_normal((PAPERS, 6)) + topic[:, None]).astype("float32")
        people = rng.standard_normal((AUTHORS, 3)).astype("float32")
        cites = rng.integers(0, PAPERS, (2, 300))
        cites = cites[:, cites[0] != cites[1]]
        wrote = np.stack([rng.integers(0, AUTHORS, 200), rng.integers(0, PAPERS, 200)])
        split = rng.choice(["train", "val", "test"], PAPERS)
        columns = {f"w{k}": words[:, k] for k in range(6)}
        names = [("bio", "chem", "math")[k] for k in topic]
        write_table(folder / "papers.csv", doi=self.ids["paper"], topic=names, split=split, **columns)
        write_table(folder / "authors.parquet", number=self.ids["author"], vector=people.tolist())
        paper, author = (np.array(self.ids[kind]) for kind in ("paper", "author"))
        write_table(folder / "cites.csv", source=paper[cites[0]], target=paper[cites[1]])
        write_table(folder / "wrote.parquet", author=author[wrote[0]], paper=paper[wrote[1]])
        (folder / "schema.yaml").write_text(SCHEMA)
        edges = {
            ("paper", "cites", "paper"): np.concatenate([cites, cites[::-1]], 1),
            ("author", "wrote", "paper"): wrote,
            ("paper", "written by", "author"): wrote[::-1].copy(),
        }
        ends = {triple: tuple(map(torch.from_numpy, both)) for triple, both in edges.items()}
        self.graph = dgl.heterograph(ends, {"paper": PAPERS, "author": AUTHORS})
        self.x = {"paper": torch.from_numpy(words), "author": torch.from_numpy(people)}
        self.topic, self.split = topic, split


def sar(*words: object) -> str:
    done = run_sar(*words, libraries=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("form", ["sar", "dgl"])
def test_from_tables_to_predictions(tmp_path: Path, form: str) -> None:
    tables = Tables(tmp_path)
    sar("ingest", tmp_path / "schema.yaml", "--out", tmp_path / "graph")
    parts = tmp_path / "parts"
    sar("partition", tmp_path / "graph", "--parts", 2, "--method", "random", "--format", form, "--out", parts)
    script = ROOT / "tests" / "cli" / "hetero_model.py"
    sar("launch", "-n", 2, "-m", "tests.cli.hetero_model", parts, tmp_path)
    net = model.build()
    net.load_state_dict(load_file(tmp_path / "model.safetensors"))
    with torch.no_grad():
        expected = net.eval()(tables.graph, tables.x)
    common = [f"{script}:build", "--checkpoint", tmp_path / "model.safetensors", "--data", parts]
    for kind, ids in tables.ids.items():
        joined = tmp_path / f"{kind}-all.parquet"
        sar("gather", tmp_path / f"{kind}.parquet", "-o", joined)
        check(joined, ids, expected[kind])
    sar("infer", *common, "--ntype", "author", "--out", tmp_path / "infer.parquet")
    sar("gather", tmp_path / "infer.parquet", "-o", tmp_path / "infer-all.parquet")
    check(tmp_path / "infer-all.parquet", tables.ids["author"], expected["author"])
    found = json.loads(sar("evaluate", *common, "--metrics", "accuracy", "--json"))
    right = expected["paper"].argmax(1).numpy() == tables.topic
    for split in ("train", "val", "test"):
        assert found[split]["accuracy"] == pytest.approx(right[tables.split == split].mean(), abs=1e-6)


def check(path: Path, ids: list[object], expected: torch.Tensor) -> None:
    """That a file has each row under its id."""
    table = pq.read_table(path).to_pydict()
    assert table["id"] == sorted(ids)  # type: ignore[type-var]
    rows = dict(zip(table["id"], table["value"]))
    np.testing.assert_allclose(np.array([rows[one] for one in ids]), expected.numpy(), rtol=1e-4, atol=1e-5)
