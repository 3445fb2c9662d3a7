"""GraphSAGE (mean) trained on sampled neighbourhoods, over several workers: each draws batches of its own nodes and
fetches the features that their blocks read; after every batch gradients are added up. Accuracy is that of the full
graph.

sar partition examples/data/cornell5.npz --parts 2 --out parts
sar launch -n 2 examples/sampling_cornell5.py --partitioning-json-file parts/cornell5.json
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
    return rows / rows.sum(1, keepdim=True).clamp(min=1)


def main():
    args = common.arguments(__doc__, train_iters=4, hidden_layer_dim=64, lr=0.01, dropout=0.5, every=1)
    address = common.master_address(args)
    sar.initialize_comms(args.rank, args.world_size, address, args.backend, master_port_number=args.master_port)
    progress = common.Progress(args)

    data = sar.load_dgl_partition_data(args.partitioning_json_file, args.rank, torch.device("cpu"))
    features = sar.suffix_key_lookup(data.node_features, "features")
    _, labels, masks = common.node_data(data)
    graph = sar.construct_full_graph(data)
    n_classes = common.number_of_classes(labels)
    seeds = masks[0].nonzero().view(-1) + data.node_ranges[args.rank][0]

    fanouts = [10, 10]
    sampler = sar.DistNeighborSampler(
        fanouts, input_node_features={"features": features}, output_node_features={"labels": labels}
    )
    loader = sar.DataLoader(
        graph, seeds, sampler, 512 // args.world_size, shuffle=True, precompute_optimized_batches=False
    )

    torch.manual_seed(args.seed)
    model = SAGE(features.shape[1], args.hidden_layer_dim, n_classes, len(fanouts), args.dropout)
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
                logits = model([graph] * len(fanouts), scaled(features))
                progress.show(common.accuracies(logits, labels, masks))
    progress.finish()


if __name__ == "__main__":
    main()
