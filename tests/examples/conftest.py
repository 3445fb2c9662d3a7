"""Graphs of the examples, in parts, and their scripts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, warm
from tests.support.command import run_sar

EXAMPLES = ROOT / "examples"
DEADLINE = 300
Parts = Callable[[str, int], Path]


def sar(*words: object, libraries: bool = True) -> str:
    done = run_sar(*words, deadline=DEADLINE, libraries=libraries)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(script: str, *words: object, **variables: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = warm.run([str(EXAMPLES / "more" / script), *map(str, words)], DEADLINE, libraries=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """A function (graph, parts) that gives the path of the description, and partitions where that was not done.
    "papers" is the heterograph that the examples come with, "links" Cora with its edges split."""
    folder = tmp_path_factory.mktemp("parts")

    def get(graph: str, count: int) -> Path:
        path = folder / f"{graph}-{count}" / f"{graph}.json"
        if path.exists():
            return path
        source = EXAMPLES / "data" / f"{graph}.npz"
        if graph == "links":
            run("split_links.py", EXAMPLES / "data" / "cora.npz", "--parts", count, "--out", path.parent)
            return path
        if graph == "papers":
            source = folder / "papers.npz"
            run("generate_hetero.py", source)
        loops = ["--self-loops"] if graph in ("cora", "citeseer") else []
        sar("partition", source, "--parts", count, "--out", path.parent, *loops)
        return path

    return get


def train(script: str, path: Path, workers: int, *words: object) -> dict[str, Any]:
    """What a script of examples/more writes about its training."""
    results = path.parent / "results.json"
    results.unlink(missing_ok=True)
    given = ["--partitioning-json-file", path, "--results", results, *words]
    text = sar("launch", "-n", workers, EXAMPLES / "more" / script, *given)
    assert "accuracy: train" in text
    found: dict[str, Any] = json.loads(results.read_text())
    return found
