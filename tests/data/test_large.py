"""What large graphs need: files that are made and cut in pieces, hubs, workers without nodes."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import dgl
import numpy as np
import pytest
import torch

from sar.partitioning.dataset import Dataset
from tests.data import cases_large
from tests.support import ROOT
from tests.support.graphs import close
from tests.support.sessions import Workers

sys.path.insert(0, str(ROOT / "bench"))

import scale_graph  # noqa: E402


@pytest.mark.parametrize(("nodes", "edges", "hub"), [(1, 6, 0), (2, 7, 1), (3000, 20_001, 9000), (70_000, 300_000, 0)])
def test_generated_graphs(tmp_path: Path, nodes: int, edges: int, hub: int) -> None:
    """What the benchmarks of scale train on: edges in both directions, and a hub beside them."""
    for name in ("a", "b"):
        scale_graph.write(str(tmp_path / name), nodes, edges, features=8, hub=hub)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    found = dict(np.load(tmp_path / "a"))
    src, dst = found["edge_index"]
    assert len(src) == edges and found["x"].shape == (nodes, 8) and found["y"].shape == (nodes,)
    assert min(src.min(), dst.min()) >= 0 and max(src.max(), dst.max()) < nodes
    half = (edges - hub) // 2
    np.testing.assert_array_equal(src[:half], dst[half : 2 * half])
    np.testing.assert_array_equal(dst[:half], src[half : 2 * half])
    assert len(np.unique(dst[2 * half :])) <= 1  # the hub takes what is left
    assert not (found["train_mask"] & found["test_mask"]).any()
    if nodes == 70_000:
        degree = np.bincount(dst, minlength=nodes)
        assert degree.max() > 20 * degree.mean()  # popularity is skewed
        same = found["y"][src] == found["y"][dst]
        assert same.mean() > 0.7  # labels follow communities
        centers = np.stack([found["x"][found["y"] == label].mean(0) for label in range(40)])
        assert centers.std(0).min() > 0.2  # features follow labels


MEASURE = """
import sys
import numpy as np
from sar.partitioning.dataset import Dataset
from sar.cli.resident import reset_peak, resident
with Dataset(sys.argv[1]) as dataset:
    reset_peak()
    before = resident()["now"]
    if sys.argv[3] == "loops":
        dataset.add_self_loops()
    assignment = dataset.assign("random", 4, 0)
    dataset.quality(assignment, 4)
    settings = {"name": "g", "method": "random", "memory": int(sys.argv[4])}
    dataset.write_parts(assignment, 4, sys.argv[2], settings)
    print(resident()["peak"] - before)
"""


@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.full), "loops", "compressed", "room"])
def test_cutting_takes_no_memory_for_edges_and_features(tmp_path: Path, kind: str) -> None:
    """A file of 125 MB. Allowed: some bytes a node, and buffers. Where there is room for the features, 100 MB, nodes
    are numbered near each other, and features are arranged in memory."""
    nodes, edges = 100_000, 3_000_000
    memory, room = (1 << 30, 100_000_000) if kind == "room" else (80 << 20, 0)
    path = tmp_path / "g.npz"
    scale_graph.write(str(path), nodes, edges, features=250)
    if kind == "compressed":
        content = dict(np.load(path))
        content["x"][:] = content["x"][:1]  # or compressing would take long
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name, array in content.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), str(tmp_path / "out"), kind, str(memory)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 24 * nodes + (56 << 20) + room, f"{int(done.stdout) >> 20} MiB"


@pytest.mark.parametrize("empty", [0, 2, 3])
def test_a_hub_and_a_worker_without_nodes(tmp_path: Path, pool: object, empty: int) -> None:
    """From the file to gradients, against DGL on the whole graph."""
    nodes, edges = 3000, 40_000
    path = tmp_path / "g.npz"
    scale_graph.write(str(path), nodes, edges, features=16, hub=15_000)
    arrays = np.load(path)
    assignment = np.random.default_rng(1).choice([p for p in range(4) if p != empty], nodes).astype(np.int32)
    with Dataset(str(path)) as dataset:
        dataset.write_parts(assignment, 4, str(tmp_path), {"name": "g", "method": "random"})
    grad = np.random.default_rng(2).standard_normal((nodes, 16)).astype(np.float32)

    src, dst = (torch.from_numpy(ends.astype(np.int64)) for ends in arrays["edge_index"])
    whole = dgl.graph((src, dst), num_nodes=nodes)
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    whole.ndata["x"] = x
    whole.update_all(dgl.function.copy_u("x", "m"), dgl.function.mean("m", "y"))
    expected = whole.ndata["y"]
    expected.backward(torch.from_numpy(grad))

    results = Workers(pool, 4, "shm").run(cases_large.mean_from_files, json_file=str(tmp_path / "g.json"), grad=grad)
    assert sum(r["edges"] for r in results) == edges and len(results[empty]["ids"]) == 0
    assert sorted(np.concatenate([r["ids"] for r in results])) == list(range(nodes))
    for r in results:
        close(r["y"], expected.detach().numpy()[r["ids"]], "mean")
        close(r["grad"], x.grad.numpy()[r["ids"]], "gradient")
