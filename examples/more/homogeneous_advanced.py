"""Modes, message-flow graphs and layers, by flag.

--train-mode SAR                   boundary rows are fetched again in backward: the least memory
--train-mode SA                    what forward fetched and computed is kept: less time, more memory
--train-mode one_shot_aggregation  all boundary rows at once, then DGL alone: the most memory
--construct-mfgs                   in each layer, only the nodes that the layers above need

Losses are the same in all of them, but for gcn with --construct-mfgs: as in DGL, the out-degrees that it divides by
are then those of the message-flow graph.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts/cora
sar launch -n 2 examples/more/homogeneous_advanced.py --partitioning-json-file parts/cora/cora.json --gnn-layer gat \\
    --construct-mfgs --train-iters 30
"""

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import common
import sar


class GNN(nn.Module):
    def __init__(self, kind, n_layers, layer_dim, n_features, n_classes):
        super().__init__()
        widths = [n_features] + [layer_dim] * (n_layers - 1) + [n_classes]
        make = {
            "gcn": lambda i, o: dgl.nn.GraphConv(i, o),
            "sage": lambda i, o: dgl.nn.SAGEConv(i, o, aggregator_type="mean"),
            "gat": lambda i, o: dgl.nn.GATConv(i, o, num_heads=2),
        }[kind]
        self.convs = nn.ModuleList([make(i, o) for i, o in zip(widths, widths[1:])])

    def forward(self, blocks, h):
        for n, (conv, block) in enumerate(zip(self.convs, blocks)):
            h = conv(block, h)
            if h.dim() == 3:  # attention has a dimension of heads
                h = h.mean(1)
            if n < len(self.convs) - 1:
                h = F.relu(h)
        return h


class Layers:
    """The graph of each layer, the input rows of the first, and where the output rows are among own nodes."""

    def __init__(self, args, data, seeds):
        n_layers = args.n_layers
        if args.construct_mfgs:
            # Seeds are numbered over all workers and types: own row numbers, moved by the worker's first node.
            first = data.node_ranges[sar.rank()][0]
            self.blocks = sar.construct_mfgs(data, seeds + first, n_layers)
            self.inputs = self.blocks[0].input_nodes
            self.rows = self.blocks[-1].seeds - first  # they ascend, as the rows of nonzero() did
        else:
            self.blocks = [sar.construct_full_graph(data)] * n_layers
            self.inputs = self.rows = slice(None)
        if args.train_mode == "one_shot_aggregation":
            self.blocks = [block.get_full_partition_graph() for block in self.blocks]

    def __call__(self, model, nodes):
        """Logits of the output rows, and their labels and masks."""
        logits = model(self.blocks, nodes.features[self.inputs])
        return logits, nodes.labels[self.rows], [mask[self.rows] for mask in nodes.masks]


def main():
    args = common.arguments(__doc__, "construct-mfgs", "train-mode", "gnn-layer", "n-layers", "layer-dim", every=10)
    sar.patch_dgl()  # not needed, and harmless
    common.start(args)
    sar.Config.disable_sr = args.train_mode == "SA"
    progress = common.Progress(args)
    data = sar.load_dgl_partition_data(args.partitioning_json_file, args.rank, torch.device("cpu"))
    nodes = common.node_data(data)
    # Training needs the receptive field of the nodes with a label to learn from, evaluation that of all with a label.
    to_train, any_mask = nodes.masks[0], torch.stack(nodes.masks).any(0)
    training = Layers(args, data, to_train.nonzero().view(-1))
    evaluation = Layers(args, data, any_mask.nonzero().view(-1)) if args.construct_mfgs else training
    del data

    torch.manual_seed(args.seed)
    model = GNN(args.gnn_layer, args.n_layers, args.layer_dim, nodes.features.shape[1], nodes.n_classes)
    common.fit(args, model, nodes.n_train, lambda: training(model, nodes), lambda: evaluation(model, nodes), progress)
    progress.finish()


if __name__ == "__main__":
    main()
