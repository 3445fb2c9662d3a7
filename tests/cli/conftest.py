"""Graph directories that commands are tried on, and scripts that are launched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support import graph_dirs
from tests.support.communities import COMMUNITIES, HOMOGENEOUS, NODES, community_edges


def script(folder: Path, body: str) -> Path:
    """A worker that knows its rank."""
    path = folder / "worker.py"
    path.write_text("import os, signal, subprocess, sys, time\nrank = int(os.environ['RANK'])\n" + body)
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph directory of communities; the nodes of some of them are trained on."""
    rng = np.random.default_rng(1)
    x = rng.random((NODES, 4), dtype=np.float32)
    train = ((np.arange(NODES) % COMMUNITIES < 4) & (rng.random(NODES) < 0.6)).astype(np.uint8)
    src, dst = community_edges()
    nodes = {"_N": (NODES, {"features": x, "train_mask": train})}
    graph_dirs.write(tmp_path / "graph", nodes, {HOMOGENEOUS: (src, dst, {})})
    return tmp_path / "graph"


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A graph directory whose users call their nodes "n0", "n7", … in no order."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    src, dst = community_edges()
    ids = {"_N": "nodes/_N/ids.parquet"}
    graph_dirs.write(tmp_path / "named", {"_N": (NODES, {})}, {HOMOGENEOUS: (src, dst, {})}, ids)
    (tmp_path / "named" / "nodes" / "_N").mkdir(parents=True, exist_ok=True)
    names = pyarrow.table({"id": [f"n{7 * v % NODES}" for v in range(NODES)]})
    parquet.write_table(names, tmp_path / "named" / "nodes" / "_N" / "ids.parquet")
    return tmp_path / "named"
