"""A message function of one's own, with parameters: a gate per edge, computed by a small network from both ends.

The function is plain DGL. It runs over blocks of edges of bounded size, in forward and again in backward, so the gates
of all edges never exist at once. Its parameters are found because it is a method of a module; a function that is none
says so with ``sar.message_has_parameters``.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts/cora
sar launch -n 2 examples/custom_message.py --partitioning-json-file parts/cora/cora.json
"""

import torch
import torch.nn.functional as F
from torch import nn

import common
import sar.function as fn


class GatedConv(nn.Module):
    """``out[i] = x[i] W_self + mean over in-edges (j -> i) of sigmoid(U [h[j], h[i]]) * h[j]``, ``h = x W``."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.own = nn.Linear(n_in, n_out)
        self.message = nn.Linear(n_in, n_out)
        self.gate = nn.Linear(2 * n_out, n_out)

    def gated(self, edges):
        ends = torch.cat([edges.src["h"], edges.dst["h"]], dim=1)
        return {"m": torch.sigmoid(self.gate(ends)) * edges.src["h"]}

    def forward(self, graph, x):
        with graph.local_scope():
            graph.ndata["h"] = self.message(x)
            graph.update_all(self.gated, fn.mean("m", "out"))
            return self.own(x) + graph.dstdata["out"]


class Model(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes, dropout):
        super().__init__()
        self.first, self.second = GatedConv(n_features, n_hidden), GatedConv(n_hidden, n_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph, h):
        h = F.relu(self.first(graph, self.dropout(h)))
        return self.second(graph, self.dropout(h))


def main():
    args = common.arguments(__doc__, "hidden-layer-dim", weight_decay=5e-4, dropout=0.5, hidden_layer_dim=32)
    common.start(args)
    progress = common.Progress(args)
    graph, nodes = common.load(args)
    torch.manual_seed(args.seed)
    model = Model(nodes.features.shape[1], args.hidden_layer_dim, nodes.n_classes, args.dropout)
    common.train(args, model, nodes, lambda: model(graph, nodes.features), progress)
    progress.finish()


if __name__ == "__main__":
    main()
