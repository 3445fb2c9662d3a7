"""From DistDGL: a script that trains on a ``DistGraph`` and infers with SAR, standalone, with DGL's server process, and
on two machines.

DGL keeps partitions in shared memory under the graph's name and takes processes of one address as one machine, so one
machine runs the server of one partition. Two are network namespaces (``machines.py``).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest
import torch

import hetero
from graphs import close
from machines import Machine, NoMachines, machines
from sar._network import free_port

dgl = pytest.importorskip("dgl")

SCRIPT = Path(__file__).with_name("dist_graph.py")
EXAMPLES = Path(__file__).parent.parent / "examples"
HERE = [Machine("127.0.0.1", [])]


@pytest.fixture(scope="module")
def two_machines() -> Iterator[list[Machine]]:
    try:
        with machines() as made:
            yield made
    except NoMachines as reason:
        pytest.skip(f"no network namespaces here, which two machines need: {reason}")


@pytest.fixture(params=["standalone", "server", "machines"])
def place(request: pytest.FixtureRequest) -> list[Machine] | None:
    """Where trainers run; None: one, without a server."""
    if request.param == "machines":
        made: list[Machine] = request.getfixturevalue("two_machines")
        return made
    return HERE if request.param == "server" else None


def whole() -> Any:
    rng = np.random.default_rng(3)
    src, dst = torch.from_numpy(rng.integers(0, 60, (2, 300)))
    graph = dgl.graph((src, dst), num_nodes=60)
    graph.ndata["features"] = torch.from_numpy(rng.standard_normal((60, 4)).astype(np.float32))
    graph.ndata["labels"] = torch.arange(60) % 3
    graph.edata["w"] = torch.from_numpy(rng.random((300, 1)).astype(np.float32))
    return graph


def start(words: list[object], inside: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*inside, sys.executable, *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    try:
        text, _ = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        pytest.fail(f"the script does not end:\n{text}")
    return text


def train(place: list[Machine] | None, json_file: Path, words: list[object]) -> list[str]:
    """Runs ``words`` as the trainer of each machine, beside the server of its partition, as DGL's launch script does.
    What the trainers print. ``IP_CONFIG`` among the words stands for the list of machines."""
    where = place or HERE
    ip_config = json_file.parent / "ip_config.txt"
    ip_config.write_text("".join(f"{machine.address} {free_port()}\n" for machine in where))
    words = [ip_config if word == "IP_CONFIG" else word for word in words]
    common = {"MASTER_ADDR": where[0].address, "MASTER_PORT": str(free_port())}
    if place:
        common |= {
            "DGL_DIST_MODE": "distributed",
            "DGL_NUM_SAMPLER": "0",
            "DGL_NUM_CLIENT": str(len(place)),
            "DGL_NUM_SERVER": "1",
            "DGL_CONF_PATH": str(json_file),
            "DGL_IP_CONFIG": str(ip_config),
            "DGL_GRAPH_FORMAT": "csc",
            "DGL_KEEP_ALIVE": "0",
            "WORLD_SIZE": str(len(place)),
        }
    if len(where) > 1:
        common["GLOO_SOCKET_IFNAME"] = "veth"  # the name of this host has no address there
    servers = [
        start(words, machine.inside, {**common, "DGL_ROLE": "server", "DGL_SERVER_ID": str(n)})
        for n, machine in enumerate(place or [])
    ]
    trainers = [
        start(words, machine.inside, {**common, **({"RANK": str(n)} if place else {})})
        for n, machine in enumerate(where)
    ]
    try:
        texts = [output(trainer) for trainer in trainers]
        for server in servers:
            server.wait(30)
    finally:
        for process in [*servers, *trainers]:
            if process.poll() is None:
                process.kill()
                print(process.communicate()[0])
    for trainer, text in zip(trainers, texts):
        assert trainer.returncode == 0, text
    return texts


def results(place: list[Machine] | None, json_file: Path) -> list[dict[str, Any]]:
    """What ``dist_graph.py`` found on each partition."""
    texts = train(place, json_file, [SCRIPT, json_file, "IP_CONFIG", free_port()])
    return [json.loads(re.findall("^RESULT (.*)$", text, re.MULTILINE)[-1]) for text in texts]


def test_train_in_distdgl_and_infer_with_sar(tmp_path: Path, place: list[Machine] | None) -> None:
    graph, parts = whole(), len(place or HERE)
    nodes, edges = dgl.distributed.partition_graph(
        graph, f"little{os.getpid()}", parts, str(tmp_path), part_method="random", return_mapping=True
    )
    found = results(place, next(tmp_path.glob("*.json")))
    counts = np.array([one["counts"] for one in found])
    assert counts[:, :2].sum(0).tolist() == [60, 300] and counts[:, 2:].tolist() == [[60, 300]] * parts
    assert all(all(one["types"]) and one["shards"] == parts for one in found)
    losses = np.array([one["losses"] for one in found]).sum(0)
    assert losses[-1] < losses[0]
    for name, value in found[0]["state"].items():
        assert all(one["state"][name] == value for one in found), f"trainers differ in {name}"
    model = torch.nn.ModuleList([dgl.nn.SAGEConv(4, 8, "mean"), dgl.nn.SAGEConv(8, 3, "mean")])
    model.load_state_dict({k: torch.tensor(v) for k, v in found[0]["state"].items()})
    with torch.no_grad():
        out = model[1](graph, torch.relu(model[0](graph, graph.ndata["features"])))[nodes]
    joined = {name: np.concatenate([np.array(one[name], np.float32) for one in found]) for name in ("out", "weighted")}
    close(joined["out"], out.numpy(), "inference", loose=5)
    graph.update_all(dgl.function.u_mul_e("features", "w", "m"), dgl.function.sum("m", "n"))
    close(joined["weighted"], graph.ndata["n"][nodes].numpy(), "edge features", loose=5)


def test_a_heterograph(tmp_path: Path, place: list[Machine] | None) -> None:
    ends = hetero.edges(few=False)
    graph = dgl.heterograph({t: tuple(map(torch.from_numpy, e)) for t, e in ends.items()}, num_nodes_dict=hetero.KINDS)
    graph.edges["cites"].data["w"] = torch.arange(150.0).view(-1, 1)
    graph.nodes["paper"].data["features"] = torch.arange(80.0).view(40, 2)
    nodes, edges = dgl.distributed.partition_graph(
        graph, f"typed{os.getpid()}", len(place or HERE), str(tmp_path), part_method="random", return_mapping=True
    )
    found = results(place, next(tmp_path.glob("*.json")))
    assert all(all(one["types"]) for one in found)
    assert sum(one["counts"][0] for one in found) == graph.num_nodes()
    assert sum(one["counts"][1] for one in found) == graph.num_edges()
    joined = {name: sum((one[name] for one in found), []) for name in ("w", "again", "papers", "cited")}
    assert joined["w"] == joined["again"] == edges["paper", "cites", "paper"].float().tolist()
    assert joined["papers"] == graph.nodes["paper"].data["features"][nodes["paper"]].flatten().tolist()
    graph.update_all(dgl.function.u_mul_e("features", "w", "m"), dgl.function.sum("m", "n"), etype="cites")
    assert joined["cited"] == graph.nodes["paper"].data["n"][nodes["paper"]].tolist()


def test_the_example_on_two_machines(tmp_path: Path, two_machines: list[Machine]) -> None:
    data = str(EXAMPLES / "data" / "cora.npz")
    words = [sys.executable, "-m", "sar", "partition", data, "--parts", "2", "--out", str(tmp_path)]
    subprocess.run(words, check=True, capture_output=True)
    json_file = tmp_path / "cora.json"
    given = ["--graph-name", "cora", "--part-config", json_file, "--ip-config", "IP_CONFIG", "--num-epochs", 8]
    texts = train(two_machines, json_file, [EXAMPLES / "distdgl_sar_inference.py", *given, "--batch-size", 16])
    (line,) = [line for text in texts for line in text.splitlines() if "full-graph inference" in line]
    shown = re.search(r"test ([\d.]+) %", line)
    assert shown is not None and float(shown.group(1)) > 70, line
