"""Test accuracy after training in float32 and under torch.autocast in bfloat16, and losses of one and of two workers.

Two layers with dropout, by ``sar.prepare``: DGL's GraphConv on Cora and CiteSeer, SAGEConv on Cornell5 and on
communities that are drawn here. Of CiteSeer and Cornell5 the 256 fullest features are read. Dropout draws the same in
both types and for any number of workers, so seeds are compared in pairs.

    python bench/accuracy_bf16.py [--graphs cora,citeseer,cornell5,communities] [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import common
import sar
from sar.cli.output import stage, table

GRAPHS = {"cora": ("gcn", 16, 100), "citeseer": ("gcn", 16, 100), "cornell5": ("sage", 32, 40)}
GRAPHS["communities"] = ("sage", 32, 100)
"""Layer, hidden columns and epochs of each graph."""
FEATURES = 256
"""Columns of CiteSeer and Cornell5 that are read."""


def communities() -> dict[str, np.ndarray]:
    """8 communities of some 500 nodes; a third of the edges leave theirs, and most features say nothing."""
    rng = np.random.default_rng(1)
    n, groups, width = 4000, 8, 64
    y = rng.integers(0, groups, n)
    of_group = [np.flatnonzero(y == g) for g in range(groups)]
    u = rng.integers(0, n, 8 * n)
    near = np.array([rng.choice(of_group[y[i]]) for i in u])
    v = np.where(rng.random(len(u)) < 0.6, near, rng.integers(0, n, len(u)))
    x = rng.random((n, width)) < 0.15
    x |= (rng.random((n, width)) < 0.5) & (np.arange(width) % groups == y[:, None]) & (rng.random((n, 1)) < 0.6)
    role = rng.random(n)
    masks = {"train": role < 0.1, "val": (role >= 0.1) & (role < 0.3), "test": role >= 0.3}
    content = {"edge_index": np.stack([np.r_[u, v], np.r_[v, u]]), "x": x.astype(np.uint8), "y": y}
    return {**content, **{f"{name}_mask": mask for name, mask in masks.items()}}


def parts(name: str, count: int) -> str:
    """A graph in parts, the bench graph too: the path of the description, made anew."""
    folder = os.path.join(common.WORK, f"accuracy-{name}-{count}")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if name == "communities":
        content = communities()
    else:
        file = common.bench_graph() if name == "bench" else os.path.join(common.ROOT, "examples", "data", f"{name}.npz")
        with np.load(file) as arrays:
            content = dict(arrays)
    if name in ("citeseer", "cornell5"):
        fullest = np.argsort(-content["x"].sum(0, dtype=np.int64), kind="stable")[:FEATURES]
        content["x"] = content["x"][:, np.sort(fullest)]
    np.savez(os.path.join(folder, "graph.npz"), **content)
    words = ["--parts", str(count), "--self-loops", "--name", name, "--out", folder]
    command = [sys.executable, "-m", "sar", "partition", os.path.join(folder, "graph.npz"), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, f"{name}.json")


class Net(nn.Module):
    def __init__(self, kind: str, sizes: list[int]) -> None:
        super().__init__()
        make = dgl.nn.GraphConv if kind == "gcn" else lambda i, o: dgl.nn.SAGEConv(i, o, "mean")
        self.first, self.last = (make(i, o) for i, o in zip(sizes, sizes[1:]))
        self.before, self.between = nn.Dropout(0.5), nn.Dropout(0.5)

    def forward(self, graph, x):
        return self.last(graph, self.between(F.relu(self.first(graph, self.before(x)))))


def train(graph, kind: str, hidden: int, epochs: int, autocast: bool, seed: int) -> dict:
    """Losses over all workers, and the share of test nodes that are right."""
    x = graph.ndata["features"].float()
    x = x / x.sum(1, keepdim=True).clamp(min=1)
    x = x.bfloat16() if autocast else x
    labels, (fit, test) = graph.ndata["labels"], (graph.ndata[f"{m}_mask"].bool() for m in ("train", "test"))
    nodes = graph.total(fit)
    torch.manual_seed(seed)
    model = Net(kind, [x.shape[1], hidden, graph.num_classes])
    sar.sync_params(model)
    torch.manual_seed(seed)
    model = sar.prepare(model, graph)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4), []

    def forward():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return model(graph, x).float()

    for _ in range(epochs):
        loss = F.cross_entropy(forward()[fit], labels[fit].long(), reduction="sum") / nodes
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        total = loss.detach().clone()
        sar.comm.all_reduce(total, "sum")
        losses.append(float(total))
    model.eval()
    with torch.no_grad():
        right = graph.total((forward().argmax(1) == labels)[test].float())
    return {"losses": losses, "accuracy": float(right) / float(graph.total(test))}


def worker(path: str) -> None:
    """Trains what each line asks for."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sar.initialize_comms()
    graph = sar.load(path)
    print("{}", flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        print(json.dumps(train(graph, **json.loads(line))), flush=True)
    sar.comm.shutdown()


def measure(name: str, seeds: int) -> dict:
    kind, hidden, epochs = GRAPHS[name]
    given = {"kind": kind, "hidden": hidden}
    found: dict = {}
    with common.Group("accuracy_bf16.py", ["worker", parts(name, 1)], 1, 1, {}) as group:
        group.answers()
        for autocast in (False, True):
            runs = [
                group.ask(json.dumps({**given, "epochs": epochs, "autocast": autocast, "seed": seed}))[0]
                for seed in range(seeds)
            ]
            found["autocast" if autocast else "float32"] = [one["accuracy"] for one in runs]
            alone = runs[0]["losses"]
    with common.Group("accuracy_bf16.py", ["worker", parts(name, 2)], 2, 1, {"SAR_TRANSPORT": "shm"}) as group:
        group.answers()
        (two, _) = group.ask(json.dumps({**given, "epochs": epochs, "autocast": True, "seed": 0}))
    found["loss of 1 worker"], found["loss of 2 workers"] = alone, two["losses"]
    found["losses differ by"] = max(abs(a - b) for a, b in zip(alone, two["losses"]))
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--graphs", default=",".join(GRAPHS))
    p.add_argument("--seeds", type=int, default=5)
    a = p.parse_args()
    machine, results, rows = common.machine(), {}, []
    for name in a.graphs.split(","):
        with stage(name) as step:
            results[name] = one = measure(name, a.seeds)
            means = {way: 100 * statistics.mean(one[way]) for way in ("float32", "autocast")}
            spread = {way: 100 * statistics.pstdev(one[way]) for way in means}
            step.note = f"{means['autocast'] - means['float32']:+.2f} points"
        cells = [f"{means[way]:.2f} ± {spread[way]:.2f}" for way in means]
        common.save("accuracy-bf16", {"machine": machine, "results": results})
        rows.append([f"{name}, {GRAPHS[name][0]}", *cells, step.note, f"{one['losses differ by']:.1e}"])
    print(common.machine_line(machine))
    print(table(["", "float32, %", "autocast, %", "difference", "losses of 1 and 2 workers differ by"], rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2])
    else:
        main()
