"""A 3-layer GraphSAGE (mean) with batch normalization between layers on a dense friendship graph, over several workers.

sar partition examples/data/cornell5.npz --parts 2 --out parts/cornell5
sar launch -n 2 examples/more/sage_cornell5.py --partitioning-json-file parts/cornell5/cornell5.json
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
    args = common.arguments(__doc__, "hidden-layer-dim", train_iters=20, hidden_layer_dim=64, lr=0.003, every=5)
    common.start(args)
    progress = common.Progress(args)
    graph, nodes = common.load(args)
    torch.manual_seed(args.seed)
    model = SAGE(nodes.features.shape[1], args.hidden_layer_dim, nodes.n_classes, args.dropout)
    common.train(args, model, nodes, lambda: model(graph, nodes.features), progress)
    progress.finish()


if __name__ == "__main__":
    main()
