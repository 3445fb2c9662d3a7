"""What a checkpoint in the background adds to an epoch.

Two workers train SAGE on the bench graph, with learned features for every node, so that a checkpoint holds three rows a
node (the features and Adam's two moments). Epochs come in pairs: during one, a thread of each worker writes
checkpoints; the other has none. The difference within a pair, divided by the number of checkpoints, is the cost of one;
several an epoch make it larger than the noise. Shown are the median of the pairs and the quartiles. Processor time is
that of both workers and all of their threads.

    python bench/checkpoint.py [--layers 16] [--width 256] [--learned 64] [--times 4] [--pairs 7] [--scratch DIR]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Callable

import torch

import sar
import sar.nn
from common import MIB, WORK, parts
from sar.cli.output import table

WORKERS = 2


class Model(torch.nn.Module):
    def __init__(self, into: int, width: int, layers: int) -> None:
        super().__init__()
        self.before_layer: Callable[[int], None] = lambda number: None
        self.layers = torch.nn.ModuleList([sar.nn.SAGEConv(width if i else into, width, "mean") for i in range(layers)])

    def forward(self, graph: sar.GraphShardManager, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            self.before_layer(number)
            x = torch.relu(layer(graph, x))
        return x


def seconds(action: Callable[[], None]) -> tuple[float, float]:
    """Seconds of an action by the clock, and processor seconds of all workers."""
    sar.comm.barrier()
    begin = time.perf_counter(), time.process_time()
    action()
    sar.comm.barrier()
    clock = time.perf_counter() - begin[0]
    used = torch.tensor([time.process_time() - begin[1]], dtype=torch.float64)
    sar.comm.all_reduce(used, "sum")
    return clock, float(used)


def work(args: argparse.Namespace) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"])
    sar.initialize_comms(rank, world, os.environ["MASTER_ADDR"], "sar", master_port_number=port)
    graph = sar.construct_full_graph(sar.load_dgl_partition_data(args.parts, rank, torch.device("cpu")))
    torch.manual_seed(rank)
    model = Model(args.learned, args.width, args.layers)
    sar.sync_params(model)
    learned = torch.nn.ParameterDict({"node": torch.nn.Parameter(torch.randn(graph.num_nodes(), args.learned))})
    optimizer = torch.optim.Adam([*model.parameters(), *learned.parameters()], lr=1e-3)

    def epoch() -> None:
        loss = (model(graph, learned["node"]) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()

    folder = os.path.join(args.scratch, "checkpoints")
    checkpoints = sar.Checkpointer(
        folder, {"model": model, "learned": learned}, optimizer, graph=graph, per_node={"learned.node": "_N"}, keep=1
    )
    calls = []

    saved_at = [args.layers * i // args.times for i in range(args.times)]

    def save(layer: int) -> None:
        if layer in saved_at:
            begin = time.perf_counter()
            checkpoints.save(1)
            calls.append(time.perf_counter() - begin)

    def with_checkpoints() -> None:
        model.before_layer = save
        epoch()
        model.before_layer = lambda layer: None

    seconds(epoch)
    seconds(with_checkpoints)
    checkpoints.close()
    pairs = []
    for number in range(args.pairs):
        turns = [with_checkpoints, epoch]
        found = {}
        for turn in turns if number % 2 else reversed(turns):
            found[turn] = seconds(turn)
            checkpoints.close()
        pairs.append((found[with_checkpoints], found[epoch]))
    if rank == 0:
        (name,) = (name for name in os.listdir(folder) if name.startswith("step-"))
        size = sum(entry.stat().st_size for entry in os.scandir(os.path.join(folder, name)))
        rows = []
        for k, what in enumerate(("seconds", "processor seconds")):
            costs = [(a[k] - b[k]) / args.times for a, b in pairs]
            relative = statistics.quantiles((cost / b[k] for cost, (_, b) in zip(costs, pairs)), n=4)
            alone, cost = statistics.median(b[k] for _, b in pairs), statistics.median(costs)
            rows.append([what, f"{alone:.2f}", f"{cost:.3f}", *(f"{100 * relative[i]:.1f} %" for i in (1, 0, 2))])
        print(table(["", "an epoch", "a checkpoint", "of an epoch", "from", "to"], rows))
        print(f"save() takes {statistics.median(calls):.3f} s; a checkpoint has {size / MIB:.0f} MiB of both workers")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--learned", type=int, default=64)
    p.add_argument("--times", type=int, default=4, help="checkpoints an epoch (default: 4)")
    p.add_argument("--pairs", type=int, default=7)
    p.add_argument("--scratch", default=WORK)
    p.add_argument("--parts", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.parts:
        work(args)
        return
    command = [sys.executable, "-m", "sar", "launch", "-n", str(WORKERS), "--no-prefix", __file__, *sys.argv[1:]]
    subprocess.run([*command, "--parts", parts(WORKERS, "random")], check=True)


if __name__ == "__main__":
    main()
