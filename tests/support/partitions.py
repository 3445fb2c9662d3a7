"""A small graph on disk, in parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sar.partitioning.dataset import Dataset

N, E, PARTS = 30, 100, 2


def graph_file(path: Path, **changes: Any) -> str:
    rng = np.random.default_rng(3)
    arrays = {
        "edge_index": rng.integers(0, N, (2, E)),
        "x": rng.random((N, 3), dtype=np.float32),
        "y": np.arange(N) % 4,
        "w": rng.random(E, dtype=np.float32),
    }
    np.savez(path, **{**arrays, **changes})
    return str(path)


def partition(folder: Path, parts: int = PARTS, *, checksums: bool = False) -> Path:
    """A graph in parts. Without checksums, as from DGL: they would notice all damage, before what reads the files can
    show what it does about it."""
    with Dataset(graph_file(folder / "g.npz")) as dataset:
        dataset.write_parts(
            (np.arange(N) % parts).astype(np.int32), parts, str(folder), {"name": "g", "method": "random"}
        )
    if not checksums:
        description = json.loads((folder / "g.json").read_text())
        del description["checksum"]
        for part in range(parts):
            del description[f"part-{part}"]["checksums"]
        (folder / "g.json").write_text(json.dumps(description))
    return folder / "g.json"
