"""Memory of messages that take 1 GiB together, of a layer of PyG that a user wrote: how far resident memory rises
during forward and backward, beside the rows of the nodes.

One worker of 2 threads on the bench graph, float32, as many columns as make 1 GiB of messages. ``engine``: the message
is an expression of SAR's, which computes it edge by edge. ``blocks``: it uses a function that SAR has no expression
for, so Python computes it on blocks of edges of ``sar.Config.block_bytes``. Each runs in a process of its own, once on
narrow rows before it is measured, for what is loaded and allocated at the first call.

    python bench/messages.py
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys

import torch
from torch_geometric.nn import MessagePassing

import common
import sar
from sar.cli.output import table
from sar.cli.resident import reset_peak, resident
from sar.distributed.network import free_port

MESSAGES = 1 << 30
THREADS = "2"


class InEngine(MessagePassing):
    """A product with the opposite end."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return torch.sigmoid(x_i) * x_j


class InBlocks(InEngine):
    """The same with an angle for the first factor."""

    def message(self, x_i, x_j):
        return torch.atan2(x_i, x_j) * x_j


LAYERS = {"engine": InEngine, "blocks": InBlocks}


def growth(layer: MessagePassing, graph: sar.GraphShardManager, columns: int, backward: bool) -> float:
    """MiB that resident memory rises by, of which rows of nodes are the result and, with ``backward``, its gradient and
    that of x."""
    x = torch.randn(graph.num_nodes(), columns, requires_grad=backward)
    edge_index = sar.pyg.edge_index(graph)
    gc.collect()
    reset_peak()
    before = resident()["now"]
    out = layer(x, edge_index)
    if backward:
        out.backward(torch.ones_like(out))
    return (resident()["peak"] - before) / common.MIB


def measure(kind: str) -> dict:
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    data = sar.load_dgl_partition_data(common.parts(1, "metis"), 0, torch.device("cpu"))
    graph = sar.construct_full_graph(data)
    columns = round(MESSAGES / (4 * graph.num_edges()))
    layer = LAYERS[kind]()
    growth(layer, graph, 4, backward=True)
    found = {f"{b}": growth(layer, graph, columns, backward=b) for b in (False, True)}
    rows = graph.num_nodes() * columns * 4 / common.MIB
    return {"messages": graph.num_edges() * columns * 4 / common.MIB, "rows": rows, **found}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kind", choices=list(LAYERS), help="measure this one, here, and print JSON")
    a = p.parse_args()
    if a.kind:
        print(json.dumps(measure(a.kind)))
        return
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    common.parts(1, "metis")
    found, lines = {}, []
    for kind in LAYERS:
        command = [sys.executable, __file__, "--kind", kind]
        env = {**os.environ, "OMP_NUM_THREADS": THREADS, "SAR_NUM_THREADS": THREADS}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
        one = found[kind] = json.loads(done.stdout.splitlines()[-1])
        lines.append([kind, *(f"{one[key]:.0f}" for key in ("messages", "rows", "False", "True"))])
    header = ["message in", "messages MiB", "rows of nodes MiB", "forward MiB", "with backward MiB"]
    print(f"\n{table(header, lines)}\n")
    common.save("messages", {"machine": machine, **found})


if __name__ == "__main__":
    main()
