"""A 2-layer GCN on a citation graph, over several workers. The model is plain DGL.

sar partition examples/data/cora.npz --parts 2 --out parts
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
    sar.initialize_comms(args.rank, args.world_size, common.master_address(args), args.backend)
    common.Progress(args)

    data = sar.load_dgl_partition_data(args.partitioning_json_file, args.rank, torch.device("cpu"))
    features = common.row_normalized(sar.suffix_key_lookup(data.node_features, "/x"))
    labels = sar.suffix_key_lookup(data.node_features, "/y").long()
    masks = [sar.suffix_key_lookup(data.node_features, f"/{name}_mask").bool() for name in ("train", "val", "test")]
    graph = sar.construct_full_graph(data)
    del data

    # What the whole graph has, not only this worker's part of it.
    n_classes = labels.max() + 1 if len(labels) else torch.tensor(0)
    sar.comm.all_reduce(n_classes, torch.distributed.ReduceOp.MAX, move_to_comm_device=True)
    (n_train,) = common.total(float(masks[0].sum()))

    # A self loop at every node, as GCN wants it, is in effect `graph` itself here: see `with_self_loops`.
    model = GCN(features.shape[1], args.hidden_layer_dim, int(n_classes), args.dropout)
    sar.sync_params(model)
    # One stream of random numbers per worker: no two workers draw the same dropout mask.
    torch.manual_seed(args.seed * args.world_size + args.rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    return graph, model, optimizer, n_train


if __name__ == "__main__":
    main()
