"""SIGN: features are spread over the graph once; what is trained afterwards sees nodes alone, and no edge.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts/cora
sar launch -n 2 examples/more/sign.py --partitioning-json-file parts/cora/cora.json
"""

import torch
from torch import nn

import common
import sar.nn


class SIGN(nn.Module):
    """A linear layer for each power of the operator, then a linear layer of all of them."""

    def __init__(self, n_features, n_hidden, n_classes, powers, dropout):
        super().__init__()
        self.each = nn.ModuleList([nn.Linear(n_features, n_hidden) for _ in range(powers)])
        self.joint = nn.Sequential(nn.PReLU(), nn.Dropout(dropout), nn.Linear(powers * n_hidden, n_classes))
        self.dropout = nn.Dropout(dropout)

    def forward(self, spread):
        return self.joint(torch.cat([layer(self.dropout(x)) for layer, x in zip(self.each, spread)], dim=1))


def main():
    p = common.parser(__doc__, "hidden-layer-dim")
    p.add_argument("--k", type=int, default=3, help="powers of the operator beside the features themselves")
    p.add_argument("--operator", default="gcn", choices=("raw", "rw", "gcn", "ppr"))
    p.set_defaults(weight_decay=5e-4, dropout=0.5, hidden_layer_dim=32, train_iters=60)
    args = common.complete(p.parse_args())
    common.start(args)
    progress = common.Progress(args)
    graph, nodes = common.load(args)
    spread = sar.nn.sign_features(graph, nodes.features, args.k, args.operator)
    del graph
    torch.manual_seed(args.seed)
    model = SIGN(nodes.features.shape[1], args.hidden_layer_dim, nodes.n_classes, len(spread), args.dropout)
    common.train(args, model, nodes, lambda: model(spread), progress)
    progress.finish()


if __name__ == "__main__":
    main()
