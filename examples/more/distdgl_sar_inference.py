"""Training on samples with DistDGL, then inference on the full graph with SAR, in one script.

Inference on samples of all neighbours computes the same nodes again and again; SAR computes each once, in each layer.

On one machine with one partition DGL needs no servers:

sar partition examples/data/cornell5.npz --parts 1 --out parts/cornell5
python examples/more/distdgl_sar_inference.py --graph-name cornell5 --part-config parts/cornell5/cornell5.json

On several machines DGL's launch script starts it, one trainer per machine, with `--ip-config`, as for any other script
of DistDGL. Workers of SAR are the trainers.
"""

import argparse
import os

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import sar


class SAGE(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes):
        super().__init__()
        self.layers = nn.ModuleList(
            [dgl.nn.SAGEConv(n_features, n_hidden, "mean"), dgl.nn.SAGEConv(n_hidden, n_classes, "mean")]
        )

    def forward(self, graphs, h):
        """``graphs``: one for each layer; blocks of samples in training, the full graph in inference."""
        for layer, graph in zip(self.layers[:-1], graphs):
            h = F.relu(layer(graph, h))
        return self.layers[-1](graphs[-1], h)


def scaled(features):
    return features.float() / features.float().sum(1, keepdim=True).clamp(min=1)


def train(args, g, model):
    """Epochs over samples; returns the loss of the last one."""
    mask = g.ndata["train_mask"][np.arange(g.num_nodes())]
    nodes = dgl.distributed.node_split(mask.bool(), g.get_partition_book(), force_even=True)
    sampler = dgl.dataloading.NeighborSampler([int(n) for n in args.fan_out.split(",")])
    loader = dgl.dataloading.DistNodeDataLoader(g, nodes, sampler, batch_size=args.batch_size, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for epoch in range(args.num_epochs):
        losses = []
        for inputs, seeds, blocks in loader:
            loss = F.cross_entropy(model(blocks, scaled(g.ndata["features"][inputs])), g.ndata["labels"][seeds].long())
            optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(model)  # the mean over trainers: force_even gives all as many batches
            for parameter in model.parameters():
                parameter.grad /= sar.world_size()
            optimizer.step()
            losses.append(loss.item())
        if g.rank() == 0:
            print(f"epoch {epoch + 1}/{args.num_epochs}  loss {np.mean(losses):.4f}", flush=True)
    return float(np.mean(losses))


def infer(g, graph, model):
    """Accuracy on validation and test nodes, by one pass over the full graph. Collective."""
    book = g.get_partition_book()
    own = book.partid2nids(book.partid)
    model.eval()
    with torch.no_grad():
        logits = model([graph] * len(model.layers), scaled(g.ndata["features"][own]))
    right = logits.argmax(1) == g.ndata["labels"][own]
    counts = []
    for name in ("val_mask", "test_mask"):
        mask = g.ndata[name][own].bool()
        counts += [right[mask].sum().item(), mask.sum().item()]
    found = torch.tensor(counts, dtype=torch.float64)
    sar.comm.all_reduce(found, torch.distributed.ReduceOp.SUM, move_to_comm_device=True)
    return (found[::2] / found[1::2].clamp(min=1)).tolist()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--graph-name", required=True)
    p.add_argument("--part-config", required=True, help="the partitioning's JSON file")
    p.add_argument("--ip-config", help="DGL's list of machines; none: this machine alone")
    p.add_argument("--backend", default="sar", choices=("sar", "gloo", "mpi", "ccl", "nccl"))
    p.add_argument("--num-epochs", type=int, default=5)
    p.add_argument("--num-hidden", type=int, default=64)
    p.add_argument("--fan-out", default="10,10")
    p.add_argument("--batch-size", type=int, default=1000)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()

    dgl.distributed.initialize(args.ip_config)
    g = dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "12345"))
    parts = g.get_partition_book().num_partitions()
    sar.initialize_comms(g.rank(), parts, address, args.backend, master_port_number=port)
    graph = sar.convert_dist_graph(g)

    torch.manual_seed(args.seed)
    n_classes = int(g.ndata["labels"][np.arange(g.num_nodes())].max()) + 1
    model = SAGE(g.ndata["features"].shape[1], args.num_hidden, n_classes)
    sar.sync_params(model)
    train(args, g, model)
    val, test = infer(g, graph, model)
    if g.rank() == 0:
        print(f"full-graph inference with SAR  accuracy: val {100 * val:.1f} %, test {100 * test:.1f} %", flush=True)


if __name__ == "__main__":
    main()
