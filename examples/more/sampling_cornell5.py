"""GraphSAGE (mean) trained on sampled neighbourhoods, over several workers: each draws batches of its own nodes and
fetches the features that their blocks read; after every batch gradients are added up. Accuracy is that of the full
graph.

sar partition examples/data/cornell5.npz --parts 2 --out parts
sar launch -n 2 examples/more/sampling_cornell5.py --partitioning-json-file parts/cornell5.json
"""

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import common
import sar


class SAGE(nn.Module):
    """The same model for blocks, one for each layer, and for the full graph, given once for each layer."""

    def __init__(self, n_features, n_hidden, n_classes, n_layers, dropout):
        super().__init__()
        widths = [n_features, *[n_hidden] * (n_layers - 1), n_classes]
        self.layers = nn.ModuleList([dgl.nn.SAGEConv(i, o, "mean") for i, o in zip(widths, widths[1:])])
        self.dropout = nn.Dropout(dropout)

    def forward(self, graphs, h):
        for layer, graph in zip(self.layers[:-1], graphs):
            h = self.dropout(F.relu(layer(graph, h)))
        return self.layers[-1](graphs[-1], h)


def scaled(features):
    """Rows of bytes, which are fetched as they are, as numbers that add up to 1."""
    rows = features.float()
    return rows.div_(rows.sum(1, keepdim=True).clamp_(min=1))


def arguments():
    p = common.parser(__doc__, "hidden-layer-dim")
    p.add_argument("--batch-size", type=int, default=256, help="seeds in a batch, over all workers")
    p.add_argument("--fanout", type=int, nargs="+", default=[8, 5], help="in-edges drawn per node, for each layer")
    p.add_argument("--precompute-batches", action="store_true", help="batches with few edges between them")
    p.add_argument("--optimized-batches-cache", help="prefix of the files that keep them")
    p.add_argument("--num-workers", type=int, default=0, help="batches prepared ahead, at least 2")
    p.set_defaults(train_iters=3, hidden_layer_dim=64, dropout=0.5, every=1)
    return common.complete(p.parse_args())


def main():
    args = arguments()
    common.start(args)
    progress = common.Progress(args)
    data = sar.load_dgl_partition_data(args.partitioning_json_file, args.rank, torch.device("cpu"))
    graph, nodes = sar.construct_full_graph(data), common.node_data(data)
    features = sar.suffix_key_lookup(data.node_features, "features")

    sampler = sar.DistNeighborSampler(
        args.fanout, input_node_features={"features": features}, output_node_features={"labels": nodes.labels}
    )
    loader = sar.DataLoader(
        graph,
        nodes.masks[0].nonzero().view(-1) + data.node_ranges[args.rank][0],
        sampler,
        args.batch_size // args.world_size,
        shuffle=True,
        precompute_optimized_batches=args.precompute_batches,
        optimized_batches_cache=args.optimized_batches_cache,
        num_workers=args.num_workers,
    )

    torch.manual_seed(args.seed)
    model = SAGE(features.shape[1], args.hidden_layer_dim, nodes.n_classes, len(args.fanout), args.dropout)
    sar.sync_params(model)
    torch.manual_seed(args.seed * args.world_size + args.rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)

    for _ in range(args.train_iters):
        progress.epoch_begins()
        model.train()
        losses = torch.zeros(())
        for blocks in loader:
            logits = model(blocks, scaled(blocks[0].srcdata["features"]))
            target = blocks[-1].dstdata["labels"]
            # The mean over the seeds of all workers, where each has as many.
            loss = F.cross_entropy(logits, target, reduction="sum") / max(1, len(target)) / args.world_size
            optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(model)
            optimizer.step()
            losses += loss.detach() / len(loader)
        if progress.epoch_ends(losses):
            model.eval()
            with torch.no_grad():
                logits = model([graph] * len(args.fanout), nodes.features)
                progress.show(common.accuracies(logits, nodes.labels, nodes.masks))
    progress.finish()


if __name__ == "__main__":
    main()
