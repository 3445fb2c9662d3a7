"""Link prediction on the bench graph: two SAGE layers, and every epoch as many new negative pairs as there are edges.

PyG alone has 2 threads; SAR has 2 workers of one thread. An epoch draws pairs, encodes, scores edges and pairs by inner
products, and takes a step. Time is the median, growth the peak of resident memory while training minus the size before
the first epoch, of the worker that grows most.

    python bench/links.py [--epochs 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import common
import sar
from sar.cli.output import table
from sar.cli.resident import reset_peak, resident

HIDDEN, OUT = 128, 64


class Encoder(nn.Module):
    def __init__(self, n_features: int) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.first, self.second = SAGEConv(n_features, HIDDEN), SAGEConv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def scores(z, pairs):
    return (z[pairs[0]] * z[pairs[1]]).sum(-1)


def alone(path: str):
    """What an epoch of PyG alone needs."""
    from torch_geometric.utils import negative_sampling

    with np.load(path) as arrays:
        x, edges = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"]).long()
    return x, edges, lambda: negative_sampling(edges, len(x)), lambda n: n, lambda model: None


def split(path: str):
    """The same of a worker."""
    sar.initialize_comms()
    data = sar.load(path, pyg=True)
    return data.x.float(), data.edge_index, lambda: sar.negative_sampling(data.edge_index), data.total, sar.gather_grads


def worker(kind: str, path: str, epochs: int) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    x, edges, draw, total, gather = {"pyg": alone, "sar": split}[kind](path)
    torch.manual_seed(0)
    model = Encoder(x.shape[1])
    if kind == "sar":
        sar.sync_params(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sar.set_allocator("pool")
    reset_peak()
    before, seconds, losses = resident()["now"], [], []
    for _ in range(epochs + 1):  # the first is warm-up
        begin = time.perf_counter()
        z, pairs = model(x, edges), draw()
        count = total(edges.shape[1] + pairs.shape[1])
        loss = F.softplus(-scores(z, edges)).sum() / count + F.softplus(scores(z, pairs)).sum() / count
        optimizer.zero_grad()
        loss.backward()
        gather(model)
        optimizer.step()
        losses.append(float(total(loss.detach())))
        seconds.append(time.perf_counter() - begin)
    found = {"seconds": seconds[1:], "losses": losses, "growth": resident()["peak"] - before}
    print("@" + json.dumps(found), flush=True)


def measured(words: list[str], threads: int) -> list[dict]:
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "SAR_ALLOCATOR": "pool"}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
    found = [json.loads(line.partition("@")[2]) for line in done.stdout.splitlines() if "@{" in line]
    if done.returncode or not found:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--epochs", type=int, default=3, help="(default: 3)")
    a = p.parse_args()
    graph, parts = common.bench_graph(), common.parts(2, "metis")
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    sides = {
        "PyG alone": measured([__file__, "worker", "pyg", graph, str(a.epochs)], 2),
        "SAR, 2 workers": measured(
            ["-m", "sar", "launch", "-n", "2", __file__, "worker", "sar", parts, str(a.epochs)], 1
        ),
    }
    rows, first = [], None
    for name, workers in sides.items():
        seconds = statistics.median(max(times) for times in zip(*(w["seconds"] for w in workers)))
        growth = max(w["growth"] for w in workers)
        first = first or (seconds, growth)
        losses = [f"{workers[0]['losses'][0]:.5f}", f"{workers[0]['losses'][-1]:.5f}"]
        rows.append([name, f"{seconds:.2f}", f"{seconds / first[0]:.2f}"])
        rows[-1] += [f"{growth / common.MIB:.0f}", f"{growth / first[1]:.2f}", *losses]
    print(table(["", "epoch s", "to PyG", "growth MiB", "to PyG", "first loss", "last"], rows))
    common.save("links", {"machine": machine, "sides": sides})


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
