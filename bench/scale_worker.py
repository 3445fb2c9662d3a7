"""One worker of the benchmarks of scale. It reads commands from stdin, a line each, and answers with a line of JSON:
``load``, ``construct``, ``prepare``, ``epochs K``, ``aggregate K``, ``memory``, ``end``. Every answer has the resident
sizes.

    python bench/scale_worker.py PARTS/NAME.json MODEL ALLOCATOR     rank and the others from the environment
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import sar
from sar import function as fn
from sar.cli.resident import reset_peak, resident
from sar.nn import GATConv, SAGEConv

HIDDEN, HEADS = 64, 4
CLASSES = 40
MODELS = ("sage", "gat")


class Net(nn.Module):
    """Two layers, 64 hidden: SAGE with mean, or GAT with 4 heads of 16, then one."""

    def __init__(self, kind: str, features: int) -> None:
        super().__init__()
        if kind == "sage":
            self.layers = nn.ModuleList([SAGEConv(features, HIDDEN, "mean"), SAGEConv(HIDDEN, CLASSES, "mean")])
        else:
            first = GATConv(features, HIDDEN // HEADS, HEADS, allow_zero_in_degree=True)
            self.layers = nn.ModuleList([first, GATConv(HIDDEN, CLASSES, 1, allow_zero_in_degree=True)])
        self.kind = kind

    def forward(self, graph, x):
        x = self.layers[0](graph, x)
        x = F.relu(x) if self.kind == "sage" else F.elu(x.flatten(1))
        x = self.layers[1](graph, x)
        return x if self.kind == "sage" else x.squeeze(1)


class Worker:
    def __init__(self, path: str, model: str) -> None:
        self.path, self.kind = path, model
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        port = int(os.environ["MASTER_PORT"])
        sar.initialize_comms(self.rank, self.world, os.environ["MASTER_ADDR"], "sar", master_port_number=port)
        self._warm_up()
        self.base = resident()["now"]

    @staticmethod
    def _warm_up() -> None:
        """Loads what torch loads late: the Adam constructor alone imports 150 MiB."""
        layer = nn.Linear(8, 8)
        optimizer = torch.optim.Adam(layer.parameters())
        F.cross_entropy(layer(torch.randn(8, 8)), torch.zeros(8, dtype=torch.int64)).backward()
        optimizer.step()

    def load(self) -> dict:
        self.data = sar.load_dgl_partition_data(self.path, self.rank, torch.device("cpu"))
        return {"feature_bytes": sum(t.nbytes for t in self.data.node_features.values())}

    def construct(self) -> dict:
        self.graph = sar.construct_full_graph(self.data)
        self.features = self.data.node_features
        del self.data
        return {"nodes": self.graph.num_dst_nodes(), "edges": self.graph.num_edges()}

    def prepare(self) -> dict:
        features = self.features
        del self.features
        x, y, mask = (sar.suffix_key_lookup(features, name) for name in ("features", "labels", "train_mask"))
        self.x, self.rows = x, mask.nonzero().view(-1)
        self.labels = y[self.rows]
        train = torch.tensor([len(self.rows)])
        sar.comm.all_reduce(train, "sum")
        self.n_train = float(train)
        torch.manual_seed(0)
        self.model = Net(self.kind, x.shape[1])
        sar.sync_params(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        return {}

    def epochs(self, count: str) -> dict:
        seconds, losses = [], []
        cpu = time.process_time()
        for _ in range(int(count)):
            begin = time.perf_counter()
            logits = self.model(self.graph, self.x)
            loss = F.cross_entropy(logits[self.rows], self.labels, reduction="sum") / self.n_train
            self.optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(self.model)
            self.optimizer.step()
            losses.append(loss.item())
            del logits, loss
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds, "losses": losses, "cpu": (time.process_time() - cpu) / int(count)}

    def aggregate(self, count: str) -> dict:
        """Sums of 64 columns over in-edges, forward alone."""
        x, seconds = torch.zeros(self.graph.num_src_nodes(), HIDDEN), []
        with torch.no_grad(), self.graph.local_scope():
            self.graph.srcdata["x"] = x
            for _ in range(int(count)):
                begin = time.perf_counter()
                self.graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "y"))
                seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds}

    def memory(self) -> dict:
        stats = sar.memory_stats()
        return {f"engine_{kind}": {name: s[kind] for name, s in stats.items()} for kind in ("live", "peak")}


def main() -> None:
    path, model, allocator = sys.argv[1:]
    os.environ["SAR_ALLOCATOR"] = allocator
    sar.set_allocator(allocator)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    worker = Worker(path, model)
    answer({})
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "end":
            break
        gc.collect()
        reset_peak()
        begin = time.perf_counter()
        found = getattr(worker, word)(*rest)
        now = resident()
        answer(
            {
                **found,
                "took": time.perf_counter() - begin,
                "resident": now["now"] - worker.base,
                "resident_peak": now["peak"] - worker.base,
                "base": worker.base,
            }
        )
    sar.comm.barrier()
    sar.comm.shutdown()


def answer(content: dict) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
