"""A 2-layer GCN on a citation graph, over several workers. The model is plain DGL.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts/cora
sar launch -n 2 examples/more/gcn_cora.py --partitioning-json-file parts/cora/cora.json
"""

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import common


class GCN(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes, dropout):
        super().__init__()
        self.layers = nn.ModuleList([dgl.nn.GraphConv(n_features, n_hidden), dgl.nn.GraphConv(n_hidden, n_classes)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph, h):
        h = F.relu(self.layers[0](graph, self.dropout(h)))
        return self.layers[1](graph, self.dropout(h))


def main():
    args = common.arguments(__doc__, "hidden-layer-dim", train_iters=200, weight_decay=5e-4, dropout=0.5)
    common.start(args)
    progress = common.Progress(args)
    graph, nodes = common.load(args)
    torch.manual_seed(args.seed)
    model = GCN(nodes.features.shape[1], args.hidden_layer_dim, nodes.n_classes, args.dropout)
    common.train(args, model, nodes, lambda: model(graph, nodes.features), progress)
    progress.finish()


if __name__ == "__main__":
    main()
