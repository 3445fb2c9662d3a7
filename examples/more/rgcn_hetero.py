"""R-GCN on a heterograph. Types without features get learned ones, which stay with the worker that owns the nodes.

python examples/more/generate_hetero.py papers.npz
sar partition papers.npz --parts 2 --out parts/papers
sar launch -n 2 examples/more/rgcn_hetero.py --partitioning-json-file parts/papers/papers.json --construct-mfgs
"""

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import common
import sar

TARGET = "paper"  # the type that has features and classes


class RGCNLayer(nn.Module):
    """``out[i] = x[i] W_type + b + sum over relations of the mean over in-edges (j -> i) of x[j] W_relation``."""

    def __init__(self, n_in, n_out, ntypes, relations):
        super().__init__()
        self.conv = dgl.nn.HeteroGraphConv(
            {r: dgl.nn.GraphConv(n_in, n_out, norm="right", bias=False) for r in relations}
        )
        self.own = nn.ModuleDict({t: nn.Linear(n_in, n_out) for t in ntypes})

    def forward(self, graph, h):
        out = self.conv(graph, h)
        return {t: x + self.own[t](h[t][: graph.num_dst_nodes(t)]) for t, x in out.items()}


class RGCN(nn.Module):
    def __init__(self, n_features, width, n_classes, ntypes, relations, dropout):
        super().__init__()
        self.enter = nn.Linear(n_features, width)
        self.layers = nn.ModuleList(
            [RGCNLayer(width, width, ntypes, relations), RGCNLayer(width, n_classes, ntypes, relations)]
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks, h):
        h = {**h, TARGET: self.enter(h[TARGET])}
        h = {t: self.dropout(F.relu(x)) for t, x in self.layers[0](blocks[0], h).items()}
        return self.layers[1](blocks[1], h)[TARGET]


def main():
    args = common.arguments(__doc__, "construct-mfgs", "features-dim", train_iters=60, dropout=0.3, weight_decay=5e-4)
    common.start(args)
    progress = common.Progress(args)
    data = sar.load_dgl_partition_data(args.partitioning_json_file, args.rank, torch.device("cpu"))
    nodes = common.node_data(data, TARGET)
    ntypes, relations = data.node_type_names, sorted({triple[1] for triple in data.edge_type_names})
    own = {t: len(data.partition_book.partid2nids(args.rank, t)) for t in ntypes}

    # The graph of each layer, in training and in evaluation.
    if args.construct_mfgs:
        # Seeds are row numbers over all types: masks are of one type, so they are expanded to all.
        first = data.node_ranges[args.rank][0]
        masks = [sar.suffix_key_lookup(data.node_features, f"{m}_mask", True, ntypes) for m in ("train", "val", "test")]
        training, evaluation = (
            sar.construct_mfgs(data, torch.stack(m).bool().any(0).nonzero().view(-1) + first, 2)
            for m in (masks[:1], masks)
        )
    else:
        training = evaluation = [sar.construct_full_graph(data)] * 2
    del data

    torch.manual_seed(args.seed)
    model = RGCN(nodes.features.shape[1], args.features_dim, nodes.n_classes, ntypes, relations, args.dropout)
    learned = nn.ParameterDict({t: nn.Parameter(torch.randn(own[t], args.features_dim)) for t in ntypes if t != TARGET})

    def forward():
        blocks = training if model.training else evaluation
        inputs = {TARGET: nodes.features, **learned}
        logits = model(blocks, {t: x[blocks[0].srcnodes(t)] for t, x in inputs.items()})
        everywhere = logits.new_zeros(own[TARGET], nodes.n_classes)
        return everywhere.index_copy(0, blocks[-1].dstnodes(TARGET), logits)

    common.train(args, model, nodes, forward, progress, own=learned.parameters())
    progress.finish()


if __name__ == "__main__":
    main()
