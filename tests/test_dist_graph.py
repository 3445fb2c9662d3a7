"""From DistDGL: a script that trains on a ``DistGraph`` and infers with SAR, standalone and with DGL's server process.

DGL keeps partitions in shared memory under the graph's name, so one machine runs the server of one partition.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hetero
from graphs import close
from sar._network import free_port

dgl = pytest.importorskip("dgl")

SCRIPT = Path(__file__).with_name("dist_graph.py")


def whole() -> Any:
    rng = np.random.default_rng(3)
    src, dst = torch.from_numpy(rng.integers(0, 60, (2, 300)))
    graph = dgl.graph((src, dst), num_nodes=60)
    graph.ndata["features"] = torch.from_numpy(rng.standard_normal((60, 4)).astype(np.float32))
    graph.ndata["labels"] = torch.arange(60) % 3
    graph.edata["w"] = torch.from_numpy(rng.random((300, 1)).astype(np.float32))
    return graph


def start(json_file: Path, folder: Path, **environment: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(SCRIPT), str(json_file), str(folder / "ip_config.txt"), str(free_port())]
    return subprocess.Popen(
        words,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    )


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        text, _ = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        pytest.fail(f"the script does not end:\n{text}")
    lines = [line for line in text.splitlines() if line.startswith("RESULT ")]
    assert lines, text
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


@pytest.mark.parametrize("mode", ["standalone", "server"])
def test_train_in_distdgl_and_infer_with_sar(tmp_path: Path, mode: str) -> None:
    graph = whole()
    nodes, _ = dgl.distributed.partition_graph(graph, f"little{os.getpid()}", 1, str(tmp_path), return_mapping=True)
    json_file = next(tmp_path.glob("*.json"))
    (tmp_path / "ip_config.txt").write_text(f"127.0.0.1 {free_port()}\n")
    common = {
        "DGL_DIST_MODE": "distributed",
        "DGL_NUM_SAMPLER": "0",
        "DGL_NUM_CLIENT": "1",
        "DGL_NUM_SERVER": "1",
        "DGL_CONF_PATH": str(json_file),
        "DGL_IP_CONFIG": str(tmp_path / "ip_config.txt"),
        "DGL_GRAPH_FORMAT": "csc,coo",
        "DGL_KEEP_ALIVE": "0",
    }
    server = None
    if mode == "server":
        server = start(json_file, tmp_path, **common, DGL_ROLE="server", DGL_SERVER_ID="0")
        client = start(json_file, tmp_path, **common, DGL_ROLE="client")
    else:
        client = start(json_file, tmp_path)
    try:
        found = result(client)
        if server is not None:
            server.wait(30)
    finally:
        if server is not None and server.poll() is None:
            server.kill()
            print(server.communicate()[0])
    assert found["counts"] == [60, 300, 60, 300] and all(found["types"]) and found["shards"] == 1
    assert found["losses"][-1] < found["losses"][0]
    model = torch.nn.ModuleList([dgl.nn.SAGEConv(4, 8, "mean"), dgl.nn.SAGEConv(8, 3, "mean")])
    model.load_state_dict({k: torch.tensor(v) for k, v in found["state"].items()})
    with torch.no_grad():
        out = model[1](graph, torch.relu(model[0](graph, graph.ndata["features"])))[nodes]
    close(np.array(found["out"], np.float32), out.numpy(), "inference", loose=5)
    graph.update_all(dgl.function.u_mul_e("features", "w", "m"), dgl.function.sum("m", "n"))
    close(np.array(found["weighted"], np.float32), graph.ndata["n"][nodes].numpy(), "edge features", loose=5)


def test_a_heterograph(tmp_path: Path) -> None:
    ends = hetero.edges(few=False)
    graph = dgl.heterograph({t: tuple(map(torch.from_numpy, e)) for t, e in ends.items()}, num_nodes_dict=hetero.KINDS)
    graph.edges["cites"].data["w"] = torch.arange(150.0).view(-1, 1)
    graph.nodes["paper"].data["features"] = torch.arange(80.0).view(40, 2)
    nodes, edges = dgl.distributed.partition_graph(graph, "typed", 1, str(tmp_path), return_mapping=True)
    (tmp_path / "ip_config.txt").write_text("127.0.0.1 1\n")
    found = result(start(tmp_path / "typed.json", tmp_path))
    assert all(found["types"]) and found["counts"][:2] == [graph.num_nodes(), graph.num_edges()]
    assert found["w"] == found["again"] == edges["paper", "cites", "paper"].float().tolist()
    assert found["papers"] == graph.nodes["paper"].data["features"][nodes["paper"]].flatten().tolist()
