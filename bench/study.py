"""Training on the whole graph against training on samples: accuracy, time and memory.

SAGE, GAT, GCNII of 8 layers and SGFormer, 64 columns each (study_models.py), on Cora, CiteSeer, Cornell5 and the bench
graph, trained in three ways:

    whole        by SAR, all training nodes in each step
    sampled      by SAR's loader: SAGE and GAT, on blocks of 10 in-edges a node and layer
    sampled dgl  by DGL alone: SAGE and GAT by its NeighborSampler with the same numbers, GCNII and SGFormer by its
                 ShaDowKHopSampler, on what lies within 10 and 5 drawn in-edges of the seeds

Everybody gets the same: 4 settings (learning rate 0.01 and 0.003, dropout 0.3 and 0.6; weight decay 5e-4), one training
each, of which the best accuracy on validation nodes decides; then 5 seeds of that one. A training ends after its time
(--seconds a graph), or where the accuracy on validation nodes has not grown for a third of it. Batches have 512 seeds,
on small graphs as many as there are. Every way is one process on one thread, and times are its processor time, so that
two of them beside each other (--jobs) change little. Evaluation is on the whole graph in all ways and is not counted.

The table has, for each way: accuracy on test nodes where that on validation nodes was best, mean and standard
deviation; steps a second; the time until accuracy on test nodes is 99 % of the best mean of the sampled ways, the
median over seeds, and how many of them got there; and the growth of resident memory, from the imports to the peak of
the first steps, graph and features included.

    python bench/study.py [--graphs cora,citeseer,cornell5,bench] [--models sage,gat,gcnii,sgformer] [--seeds 5]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F

import common
from accuracy_bf16 import parts
from sar.cli.output import stage, table
from sar.cli.resident import reset_peak, resident
from study_models import BLOCKS, MODELS, make

SECONDS = {"cora": 6, "citeseer": 6, "cornell5": 16, "bench": 16}
"""Of one training on each graph."""
SETTINGS = [{"lr": lr, "dropout": dropout} for lr, dropout in itertools.product((0.01, 0.003), (0.3, 0.6))]
FANOUT, PIECE, BATCH = [10, 10], [10, 5], 512
LOOKS = 24
"""Evaluations in a training, at most."""

Batches = Callable[[], Iterator[tuple[Any, torch.Tensor, Any, torch.Tensor]]]
"""An epoch: graphs, features, the rows of logits that count, their labels."""


class Side:
    """A graph as one way has it: ``whole`` is what a model runs on for evaluation."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, masks: dict[str, torch.Tensor]) -> None:
        self.x, self.y, self.masks = x, y.long(), masks
        self.classes = int(y.max()) + 1
        self.whole: Any = None
        self.batches: Batches = self.all_nodes

    def all_nodes(self) -> Iterator[tuple[Any, torch.Tensor, Any, torch.Tensor]]:
        fit = self.masks["train"]
        yield self.whole, self.x, fit, self.y[fit]

    def right(self, model: torch.nn.Module) -> dict[str, float]:
        """The share of validation and of test nodes that are right."""
        model.eval()
        with torch.no_grad():
            hit = model(self.whole, self.x).argmax(1) == self.y
        model.train()
        return {name: float(hit[self.masks[name]].float().mean()) for name in ("val", "test")}


def scaled(x: torch.Tensor) -> torch.Tensor:
    """Rows of bytes, which are 0 or 1, so that they add up to 1; others as they are."""
    return x / x.sum(1, keepdim=True).clamp(min=1) if x.dtype == torch.uint8 else x.float()


def of_sar(path: str, model: str, sampled: bool) -> Side:
    import sar

    sar.initialize_comms(0, 1, "127.0.0.1", "sar")
    sar.set_num_threads(1)
    if model == "sgformer":
        data = sar.load(path, pyg=True)
        side = Side(scaled(data.x), data.y, {name: data[f"{name}_mask"] for name in ("train", "val", "test")})
        side.whole = data.edge_index
        return side
    graph = sar.load(path)
    masks = {name: graph.ndata[f"{name}_mask"] for name in ("train", "val", "test")}
    side = Side(scaled(graph.ndata["features"]), graph.ndata["labels"], masks)
    side.whole = [graph, graph] if model in BLOCKS else graph
    if sampled:
        sampler = sar.DistNeighborSampler(
            FANOUT, input_node_features={"x": side.x}, output_node_features={"y": side.y}
        )
        seeds = masks["train"].nonzero().view(-1)
        loader = sar.DataLoader(graph, seeds, sampler, BATCH, shuffle=True, precompute_optimized_batches=False)

        def batches():
            for blocks in loader:
                yield blocks, blocks[0].srcdata["x"], slice(None), blocks[-1].dstdata["y"]

        side.batches = batches
    return side


def of_dgl(path: str, model: str) -> Side:
    import dgl

    with np.load(os.path.join(os.path.dirname(path), "graph.npz")) as arrays:
        content = {name: torch.from_numpy(a) for name, a in arrays.items()}
    ends = content["edge_index"].long()  # blocks of int32 crash in backward of DGL 1.1
    graph = dgl.add_self_loop(dgl.remove_self_loop(dgl.graph((ends[0], ends[1]), num_nodes=len(content["y"]))))
    masks = {name: content[f"{name}_mask"] for name in ("train", "val", "test")}
    side = Side(scaled(content["x"]), content["y"], masks)
    graph.ndata.update({"x": side.x, "y": side.y})
    graph.create_formats_()
    seeds = masks["train"].nonzero().view(-1)
    pieces = model not in BLOCKS
    if pieces:
        sampler = dgl.dataloading.ShaDowKHopSampler(PIECE)
    else:
        sampler = dgl.dataloading.NeighborSampler(FANOUT, prefetch_node_feats=["x"], prefetch_labels=["y"])
    loader = dgl.dataloading.DataLoader(graph, seeds, sampler, batch_size=BATCH, shuffle=True)

    def edges(of):
        return torch.stack([end.long() for end in of.edges()])

    def batches():
        for ids, own, got in loader:
            if pieces:  # the seeds are the first nodes
                on = edges(got) if model == "sgformer" else got
                yield on, side.x[ids.long()], slice(len(own)), side.y[own.long()]
            else:
                yield got, got[0].srcdata["x"], slice(None), got[-1].dstdata["y"]

    side.batches = batches
    side.whole = [graph, graph] if not pieces else edges(graph) if model == "sgformer" else graph
    return side


def made(side: Side, name: str, way: str, dropout: float) -> torch.nn.Module:
    model = make(name, side.x.shape[1], side.classes, dropout)
    if way != "whole" or name in BLOCKS:
        return model
    import sar

    return sar.prepare(model, side.whole)


def train(side: Side, name: str, way: str, limit: float, seed: int, lr: float, dropout: float) -> dict:
    """Accuracies, where they were taken (seconds), and steps."""
    torch.manual_seed(seed)
    model = made(side, name, way, dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=5e-4)
    used, steps, looks, best_at, best = 0.0, 0, [], 0.0, -1.0
    passes = itertools.chain.from_iterable(iter(side.batches, None))
    while used < limit and used - best_at < limit / 3:
        begin = time.process_time()
        graphs, x, rows, labels = next(passes)
        loss = F.cross_entropy(model(graphs, x)[rows], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        used += time.process_time() - begin
        if not looks or used - looks[-1]["seconds"] >= limit / LOOKS or used >= limit:
            right = side.right(model)
            looks.append({"seconds": used, "steps": steps, **right})
            if right["val"] > best:
                best, best_at = right["val"], used
    return {"looks": looks, "trained": steps, "used": used, **max(looks, key=lambda look: look["val"])}


def growth(side: Side, name: str, way: str, after_imports: int) -> int:
    """Of a training of a few steps, without evaluation."""
    reset_peak()
    model = made(side, name, way, 0.3)
    optimizer = torch.optim.Adam(model.parameters())
    for _, (graphs, x, rows, labels) in zip(range(3), itertools.chain(side.batches(), side.batches())):
        F.cross_entropy(model(graphs, x)[rows], labels).backward()
        optimizer.step()
    return resident()["peak"] - after_imports


def cell(path: str, name: str, way: str, limit: float, seeds: int) -> dict:
    """One way of one model on one graph, in this process."""
    torch.set_num_threads(1)
    if name == "sgformer":
        import torch_geometric.nn  # noqa: F401
    import dgl.dataloading  # noqa: F401

    after_imports = resident()["now"]
    side = of_dgl(path, name) if way == "sampled dgl" else of_sar(path, name, way == "sampled")
    grown = growth(side, name, way, after_imports)
    tuned = [train(side, name, way, limit, 100, **setting) for setting in SETTINGS]
    best = max(range(len(SETTINGS)), key=lambda i: tuned[i]["val"])
    runs = [train(side, name, way, limit, seed, **SETTINGS[best]) for seed in range(seeds)]
    return {"growth": grown, "setting": SETTINGS[best], "runs": runs}


def ways(name: str) -> list[str]:
    return ["whole", "sampled", "sampled dgl"] if name in BLOCKS else ["whole", "sampled dgl"]


def rows_of(graph: str, name: str, cells: dict[str, dict]) -> list[list[str]]:
    """The rows of the table for a model on a graph."""
    mean = {way: statistics.mean(run["test"] for run in one["runs"]) for way, one in cells.items()}
    goal = 0.99 * max((of for way, of in mean.items() if way != "whole"), default=0.0)
    rows = []
    for way, one in cells.items():
        runs = one["runs"]
        there = [
            first
            for run in runs
            for first in [next((look["seconds"] for look in run["looks"] if look["test"] >= goal), None)]
            if first is not None
        ]
        rows.append(
            [
                f"{graph}, {name}, {way}",
                f"{100 * mean[way]:.1f} ± {100 * statistics.pstdev(run['test'] for run in runs):.1f}",
                f"{sum(run['trained'] for run in runs) / sum(run['used'] for run in runs):.1f}",
                f"{statistics.median(there):.2f} ({len(there)} of {len(runs)})" if there else "–",
                f"{one['growth'] / common.MIB:.0f}",
                f"{one['setting']['lr']}, {one['setting']['dropout']}",
            ]
        )
    return rows


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--graphs", default=",".join(SECONDS))
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--seconds", type=float, help="of one training, on every graph")
    p.add_argument("--jobs", type=int, default=2, help="ways that train beside each other (default: 2)")
    p.add_argument("--name", default="study", help="of the JSON file in bench/out (default: study)")
    p.add_argument("--cell", nargs=4, metavar=("PATH", "MODEL", "WAY", "SECONDS"), help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.cell:
        path, name, way, limit = a.cell
        print(json.dumps(cell(path, name, way, float(limit), a.seeds)))
        return
    results: dict[str, dict] = {}
    lines: list[list[str]] = []

    def run(path: str, graph: str, name: str, way: str) -> dict:
        """Of a cell, in a process of its own."""
        limit = str(a.seconds or SECONDS[graph])
        command = [sys.executable, os.path.abspath(__file__), "--seeds", str(a.seeds), "--cell", path, name, way, limit]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        return json.loads(done.stdout.splitlines()[-1])

    paths = {graph: parts(graph, 1) for graph in a.graphs.split(",")}
    with ThreadPoolExecutor(a.jobs) as pool:
        pairs = list(itertools.product(paths, a.models.split(",")))
        running = {  # the longest first
            (graph, name): {way: pool.submit(run, paths[graph], graph, name, way) for way in ways(name)}
            for graph, name in reversed(pairs)
        }
        for graph, name in pairs:
            with stage(f"{graph}, {name}"):
                cells = {way: one.result() for way, one in running[graph, name].items()}
            results[f"{graph}, {name}"] = cells
            lines += rows_of(graph, name, cells)
            common.save(a.name, {"machine": common.machine(), "results": results})
    print(common.machine_line(common.machine()))
    print(table(["", "test, %", "steps/s", "s to 99 %", "MiB", "learning rate, dropout"], lines))


if __name__ == "__main__":
    main()
