"""A 3-layer GraphSAGE (mean) with batch normalization between layers on a dense friendship graph, over several workers.

sar partition examples/data/cornell5.npz --parts 2 --out parts
sar launch -n 2 examples/sage_cornell5.py --partitioning-json-file parts/cornell5.json
"""

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import common
import sar


class SAGE(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes, dropout):
        super().__init__()
        widths = [n_features, n_hidden, n_hidden, n_classes]
        self.layers = nn.ModuleList([dgl.nn.SAGEConv(i, o, "mean") for i, o in zip(widths, widths[1:])])
        # The one change to the model: mean and variance over the nodes of all workers.
        self.norms = nn.ModuleList([sar.DistributedBN1D(n_hidden) for _ in range(2)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph, h):
        for layer, norm in zip(self.layers, self.norms):
            h = self.dropout(F.relu(norm(layer(graph, h))))
        return self.layers[-1](graph, h)


def main():
    args = common.arguments(__doc__, train_iters=20, hidden_layer_dim=64, lr=0.003, every=5)
    address = common.master_address(args)
    sar.initialize_comms(args.rank, args.world_size, address, args.backend, master_port_number=args.master_port)
    progress = common.Progress(args)

    data = sar.load_dgl_partition_data(args.partitioning_json_file, args.rank, torch.device("cpu"))
    features, labels, masks = common.node_data(data)
    graph = sar.construct_full_graph(data)
    del data
    n_classes, n_train = common.number_of_classes(labels), common.total(masks[0].sum())

    torch.manual_seed(args.seed)
    model = SAGE(features.shape[1], args.hidden_layer_dim, n_classes, args.dropout)
    sar.sync_params(model)
    torch.manual_seed(args.seed * args.world_size + args.rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)

    for _ in range(args.train_iters):
        progress.epoch_begins()
        model.train()
        logits = model(graph, features)
        loss = F.cross_entropy(logits[masks[0]], labels[masks[0]], reduction="sum") / n_train
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        if progress.epoch_ends(loss):
            model.eval()
            with torch.no_grad():
                progress.show(common.accuracies(model(graph, features), labels, masks))
    progress.finish()


if __name__ == "__main__":
    main()
