"""Full-batch training of GraphSAGE on a homogeneous graph, in one piece: nothing but torch, DGL and SAR.

sar partition examples/data/cora.npz --parts 2 --out parts/cora
sar launch -n 2 examples/more/homogeneous_basic.py --partitioning-json-file parts/cora/cora.json --train-iters 30

It starts under torchrun, mpirun and srun too, or by hand, one process per worker:

RANK=0 WORLD_SIZE=2 MASTER_ADDR=host1 python examples/more/homogeneous_basic.py --partitioning-json-file ... &
RANK=1 WORLD_SIZE=2 MASTER_ADDR=host1 python examples/more/homogeneous_basic.py --partitioning-json-file ...
"""

import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter

import dgl
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import sar

parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
parser.add_argument("--partitioning-json-file", required=True, help="made by `sar partition` or by DGL")
parser.add_argument("--ip-file", help="file on a shared file system through which workers learn rank 0's address")
parser.add_argument("--backend", default="sar", choices=("sar", "gloo", "mpi", "ccl", "nccl"))
parser.add_argument("--cpu-run", action="store_true", help="stay on the CPU, which is where graphs live in any case")
parser.add_argument("--train-iters", type=int, default=100)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--hidden-layer-dim", type=int, default=256)
parser.add_argument("--rank", type=int, help="default: what the launcher says")
parser.add_argument("--world-size", type=int, help="default: what the launcher says")


class SAGE(nn.Module):
    def __init__(self, in_dim, hidden_dim, out_dim):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                dgl.nn.SAGEConv(in_dim, hidden_dim, aggregator_type="mean"),
                dgl.nn.SAGEConv(hidden_dim, hidden_dim, aggregator_type="mean"),
                dgl.nn.SAGEConv(hidden_dim, out_dim, aggregator_type="mean"),
            ]
        )

    def forward(self, graph, features):
        for conv in self.convs[:-1]:
            features = F.relu(conv(graph, features))
        return self.convs[-1](graph, features)


def main():
    args = parser.parse_args()
    device = torch.device("cpu")

    # Join the other workers. What is None comes from the launcher.
    master = None
    if args.ip_file:
        master = sar.nfs_ip_init(sar.environment().rank if args.rank is None else args.rank, args.ip_file)
    sar.initialize_comms(args.rank, args.world_size, master, args.backend)

    # This worker's partition: features, labels and masks of its own nodes.
    partition_data = sar.load_dgl_partition_data(args.partitioning_json_file, sar.rank(), device)
    features = sar.suffix_key_lookup(partition_data.node_features, "features").float().to(device)
    labels = sar.suffix_key_lookup(partition_data.node_features, "labels").long().to(device)
    masks = {}
    for name in ("train", "val", "test"):
        mask = sar.suffix_key_lookup(partition_data.node_features, f"{name}_mask")
        masks[name] = mask.nonzero(as_tuple=False).view(-1).to(device)

    # The graph object that models see in place of a DGL graph. The partition is not needed afterwards.
    graph = sar.construct_full_graph(partition_data).to(device)
    del partition_data

    # What only all workers together know: the number of classes, and of nodes to train on.
    n_classes = labels.max() + 1
    sar.comm.all_reduce(n_classes, dist.ReduceOp.MAX, move_to_comm_device=True)
    n_train = torch.tensor(masks["train"].numel())
    sar.comm.all_reduce(n_train, dist.ReduceOp.SUM, move_to_comm_device=True)

    torch.manual_seed(0)
    model = SAGE(features.size(1), args.hidden_layer_dim, n_classes.item()).to(device)
    sar.sync_params(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for iteration in range(args.train_iters):
        begin = time.time()
        logits = model(graph, features)
        # Each worker has its share of the loss: a sum, divided by the number of nodes of all workers.
        train = masks["train"]
        loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / n_train
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        seconds = time.time() - begin

        counts = [loss.item()]
        for mask in masks.values():
            counts += [(logits[mask].argmax(1) == labels[mask]).sum().item(), mask.numel()]
        found = torch.tensor(counts, dtype=torch.float64)
        sar.comm.all_reduce(found, dist.ReduceOp.SUM, move_to_comm_device=True)
        if sar.rank() == 0:
            loss, *found = found.tolist()
            train, val, test = (100 * right / max(total, 1) for right, total in zip(found[::2], found[1::2]))
            print(
                f"iteration {iteration + 1}/{args.train_iters} | train loss {loss:.4f} | "
                f"accuracy: train {train:.1f} %, val {val:.1f} %, test {test:.1f} % | {seconds:.3f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
