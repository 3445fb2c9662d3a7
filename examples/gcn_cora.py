"""A 2-layer GCN on a citation graph, over several workers. The model is plain DGL.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts
sar launch -n 2 examples/gcn_cora.py --partitioning-json-file parts/cora.json
"""

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import common
import sar


class GCN(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes, dropout):
        super().__init__()
        self.layers = nn.ModuleList([dgl.nn.GraphConv(n_features, n_hidden), dgl.nn.GraphConv(n_hidden, n_classes)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph, h):
        h = F.relu(self.layers[0](graph, self.dropout(h)))
        return self.layers[1](graph, self.dropout(h))


def main():
    args = common.arguments(__doc__, weight_decay=5e-4, dropout=0.5)
    address = common.master_address(args)
    sar.initialize_comms(args.rank, args.world_size, address, args.backend, master_port_number=args.master_port)
    progress = common.Progress(args)

    # This worker's share of the nodes, and a graph object that stands for the whole graph.
    data = sar.load_dgl_partition_data(args.partitioning_json_file, args.rank, torch.device("cpu"))
    features, labels, masks = common.node_data(data)
    graph = sar.construct_full_graph(data)
    del data
    n_classes, n_train = common.number_of_classes(labels), common.total(masks[0].sum())

    torch.manual_seed(args.seed)
    model = GCN(features.shape[1], args.hidden_layer_dim, n_classes, args.dropout)
    sar.sync_params(model)
    # From here on a stream of random numbers per worker: no two draw the same dropout masks.
    torch.manual_seed(args.seed * args.world_size + args.rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)

    for _ in range(args.train_iters):
        progress.epoch_begins()
        model.train()
        logits = model(graph, features)
        # Normalized by the nodes of all workers: gradients add up to those of the mean, also where a mask is empty.
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
