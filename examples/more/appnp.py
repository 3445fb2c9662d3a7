"""APPNP: a small network predicts from each node's own features, personalized PageRank spreads the predictions.

sar partition examples/data/citeseer.npz --parts 2 --self-loops --out parts/citeseer
sar launch -n 2 examples/more/appnp.py --partitioning-json-file parts/citeseer/citeseer.json
"""

import dgl
import torch
from torch import nn

import common


class APPNP(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes, dropout, k, alpha):
        super().__init__()
        self.predict = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(n_features, n_hidden), nn.ReLU()),
            *(nn.Dropout(dropout), nn.Linear(n_hidden, n_classes)),
        )
        self.spread = dgl.nn.APPNPConv(k, alpha)

    def forward(self, graph, h):
        return self.spread(graph, self.predict(h))


def main():
    p = common.parser(__doc__, "hidden-layer-dim")
    p.add_argument("--k", type=int, default=10, help="steps of PageRank")
    p.add_argument("--alpha", type=float, default=0.1, help="share that every step takes from the predictions")
    p.set_defaults(weight_decay=5e-4, dropout=0.5, hidden_layer_dim=64)
    args = common.complete(p.parse_args())
    common.start(args)
    progress = common.Progress(args)
    graph, nodes = common.load(args)
    torch.manual_seed(args.seed)
    sizes = (nodes.features.shape[1], args.hidden_layer_dim, nodes.n_classes)
    model = APPNP(*sizes, args.dropout, args.k, args.alpha)
    common.train(args, model, nodes, lambda: model(graph, nodes.features), progress)
    progress.finish()


if __name__ == "__main__":
    main()
