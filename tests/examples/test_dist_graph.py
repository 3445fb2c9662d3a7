"""From DistDGL: a script that trains on a ``DistGraph`` and infers with SAR, standalone, with DGL's server process, and
on two machines.

DGL keeps features in shared memory under names of their own, and takes processes of one address as one machine: so a
machine runs the server of one partition of one graph. Two are network namespaces (``machines.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import dgl
import numpy as np
import pytest
import torch

from sar.distributed.network import free_port
from tests.support import ROOT, hetero, warm
from tests.support.command import run_sar
from tests.support.graphs import close
from tests.support.machines import Machine, NoMachines, machines

SCRIPT = Path(__file__).with_name("dist_graph.py")
EXAMPLES = ROOT / "examples"


Place = Callable[[], AbstractContextManager[list[Machine]]]


class Run(NamedTuple):
    """A script that trained on a graph, of which partitioning made ``nodes`` and ``edges``; what trainers printed."""

    graph: Any
    nodes: Any
    edges: Any
    texts: list[str]

    def results(self) -> list[dict[str, Any]]:
        """What ``dist_graph.py`` found on each partition."""
        return [json.loads(re.findall("^RESULT (.*)$", text, re.MULTILINE)[-1]) for text in self.texts]


@contextlib.contextmanager
def here() -> Iterator[list[Machine]]:
    yield [Machine("127.0.0.1", [], os.getpid(), "", [])]


def why_not_two() -> str:
    """Why there are no two machines here; "" where there are."""
    try:
        with machines():
            return ""
    except NoMachines as reason:
        return str(reason)


def run(graph: Any, folder: Path, servers: bool) -> Run:
    """Runs ``dist_graph.py`` without servers, or with them on two machines; on this one where there are no two."""
    place: Place | None = None
    if servers:
        place = here if why_not_two() else machines
    name = f"graph{os.getpid()}"  # DGL's names in shared memory begin with it
    nodes, edges = dgl.distributed.partition_graph(
        graph, name, 2 if place is machines else 1, str(folder), part_method="random", return_mapping=True
    )
    json_file = folder / f"{name}.json"
    return Run(graph, nodes, edges, train(place, json_file, [SCRIPT, json_file, "IP_CONFIG", free_port()]))


def whole() -> Any:
    rng = np.random.default_rng(3)
    src, dst = torch.from_numpy(rng.integers(0, 60, (2, 300)))
    graph = dgl.graph((src, dst), num_nodes=60)
    graph.ndata["features"] = torch.from_numpy(rng.standard_normal((60, 4)).astype(np.float32))
    graph.ndata["labels"] = torch.arange(60) % 3
    graph.edata["w"] = torch.from_numpy(rng.random((300, 1)).astype(np.float32))
    return graph


def typed() -> Any:
    ends = hetero.edges(few=False)
    graph = dgl.heterograph({t: tuple(map(torch.from_numpy, e)) for t, e in ends.items()}, num_nodes_dict=hetero.KINDS)
    graph.edges["cites"].data["w"] = torch.arange(150.0).view(-1, 1)
    graph.nodes["paper"].data["features"] = torch.arange(80.0).view(40, 2)
    return graph


def start(words: list[object], machine: Machine, environment: dict[str, str]) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    env, elsewhere = {**os.environ, "OMP_NUM_THREADS": "1", **environment}, machine.pid if machine.inside else 0
    return warm.Popen(list(map(str, words)), inside=elsewhere, env=env, **pipes)


def output(process: subprocess.Popen[str]) -> str:
    try:
        text, _ = process.communicate(timeout=150)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        pytest.fail(f"the script does not end:\n{text}")
    return text


def train(place: Place | None, json_file: Path, words: list[object]) -> list[str]:
    """Runs ``words`` as the trainer of each machine, beside the server of its partition, as DGL's launch script does;
    None: without servers. What the trainers print. ``IP_CONFIG`` among the words stands for the list of machines."""
    with (place or here)() as where:
        return train_on(where, place is not None, json_file, words)


def train_on(where: list[Machine], serve: bool, json_file: Path, words: list[object]) -> list[str]:
    ip_config = json_file.parent / "ip_config.txt"
    ip_config.write_text("".join(f"{machine.address} {free_port()}\n" for machine in where))
    words = [ip_config if word == "IP_CONFIG" else word for word in words]
    common = {"MASTER_ADDR": where[0].address, "MASTER_PORT": str(free_port())}
    if serve:
        common |= {
            "DGL_DIST_MODE": "distributed",
            "DGL_NUM_SAMPLER": "0",
            "DGL_NUM_CLIENT": str(len(where)),
            "DGL_NUM_SERVER": "1",
            "DGL_CONF_PATH": str(json_file),
            "DGL_IP_CONFIG": str(ip_config),
            "DGL_GRAPH_FORMAT": "csc",
            "DGL_KEEP_ALIVE": "0",
            "WORLD_SIZE": str(len(where)),
        }
    common["SAR_JOB_TOKEN"] = "the token of this test"  # other hosts could reach these addresses
    if len(where) > 1:
        common["GLOO_SOCKET_IFNAME"] = "veth"  # the name of this host has no address there
    servers = [
        start(words, machine, {**common, "DGL_ROLE": "server", "DGL_SERVER_ID": str(n)})
        for n, machine in enumerate(where if serve else [])
    ]
    trainers = [
        start(words, machine, {**common, **({"RANK": str(n)} if serve else {})}) for n, machine in enumerate(where)
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


@pytest.mark.parametrize("servers", [False, True])
def test_train_in_distdgl_and_infer_with_sar(tmp_path: Path, servers: bool) -> None:
    graph, nodes, _, _ = done = run(whole(), tmp_path, servers)
    found = done.results()
    assert len(found) == 2 or not servers or why_not_two()
    counts = np.array([one["counts"] for one in found])
    assert counts[:, :2].sum(0).tolist() == [60, 300] and counts[:, 2:].tolist() == [[60, 300]] * len(found)
    assert all(all(one["types"]) and one["shards"] == len(found) for one in found)
    losses = np.array([one["losses"] for one in found]).sum(0)
    assert losses[-1] < losses[0]
    for key, value in found[0]["state"].items():
        assert all(one["state"][key] == value for one in found), f"trainers differ in {key}"
    model = torch.nn.ModuleList([dgl.nn.SAGEConv(4, 8, "mean"), dgl.nn.SAGEConv(8, 3, "mean")])
    model.load_state_dict({k: torch.tensor(v) for k, v in found[0]["state"].items()})
    with torch.no_grad():
        out = model[1](graph, torch.relu(model[0](graph, graph.ndata["features"])))[nodes]
    joined = {key: np.concatenate([np.array(one[key], np.float32) for one in found]) for key in ("out", "weighted")}
    close(joined["out"], out.numpy(), "inference", loose=5)
    graph.update_all(dgl.function.u_mul_e("features", "w", "m"), dgl.function.sum("m", "n"))
    close(joined["weighted"], graph.ndata["n"][nodes].numpy(), "edge features", loose=5)


@pytest.mark.parametrize("servers", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_heterograph(tmp_path: Path, servers: bool) -> None:
    graph, nodes, edges, _ = done = run(typed(), tmp_path, servers)
    found = done.results()
    assert all(all(one["types"]) for one in found)
    assert sum(one["counts"][0] for one in found) == graph.num_nodes()
    assert sum(one["counts"][1] for one in found) == graph.num_edges()
    joined = {key: sum((one[key] for one in found), []) for key in ("w", "again", "papers", "cited")}
    assert joined["w"] == joined["again"] == edges["paper", "cites", "paper"].float().tolist()
    assert joined["papers"] == graph.nodes["paper"].data["features"][nodes["paper"]].flatten().tolist()
    graph.update_all(dgl.function.u_mul_e("features", "w", "m"), dgl.function.sum("m", "n"), etype="cites")
    assert joined["cited"] == graph.nodes["paper"].data["n"][nodes["paper"]].tolist()


@pytest.mark.full  # its two halves: the test above on two machines, and test_distdgl_then_sar
def test_the_script_of_examples_on_two_machines(tmp_path: Path) -> None:
    reason = why_not_two()
    if reason:
        pytest.skip(f"no network namespaces here, which two machines need: {reason}")
    partition = ["partition", EXAMPLES / "data" / "cora.npz", "--parts", 2, "--out", tmp_path]
    assert run_sar(*partition).returncode == 0
    words = [EXAMPLES / "more" / "distdgl_sar_inference.py", "--graph-name", "cora", "--num-epochs", 8]
    words += ["--part-config", tmp_path / "cora.json", "--ip-config", "IP_CONFIG", "--batch-size", 16]
    texts = train(machines, tmp_path / "cora.json", words)
    (line,) = [line for text in texts for line in text.splitlines() if "inference" in line]
    shown = re.search(r"test ([\d.]+) %", line)
    assert shown is not None and float(shown.group(1)) > 70, line
