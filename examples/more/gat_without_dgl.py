"""A graph attention network where DGL is not installed: layers of sar.nn, a graph cut by `sar partition`.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts/cora
sar launch -n 2 examples/more/gat_without_dgl.py --partitioning-json-file parts/cora/cora.json
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import common
import sar.nn


class GAT(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes, dropout):
        super().__init__()
        drop = {"feat_drop": dropout, "attn_drop": dropout}
        self.first = sar.nn.GATConv(n_features, n_hidden, num_heads=8, activation=F.elu, **drop)
        self.second = sar.nn.GATConv(8 * n_hidden, n_classes, num_heads=1, **drop)

    def forward(self, graph, h):
        return self.second(graph, self.first(graph, h).flatten(1)).mean(1)


def main():
    defaults = {"lr": 0.005, "weight_decay": 5e-4, "dropout": 0.6, "hidden_layer_dim": 8}
    args = common.arguments(__doc__, "hidden-layer-dim", **defaults)
    common.start(args)
    progress = common.Progress(args)
    graph, nodes = common.load(args)
    torch.manual_seed(args.seed)
    model = GAT(nodes.features.shape[1], args.hidden_layer_dim, nodes.n_classes, args.dropout)
    common.train(args, model, nodes, lambda: model(graph, nodes.features), progress)
    progress.finish(dgl_imported=sys.modules.get("dgl") is not None)


if __name__ == "__main__":
    main()
