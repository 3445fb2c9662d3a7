"""Correct and Smooth (Huang et al., 2021): a network that sees no edge, whose errors and predictions are then spread.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts/cora
sar launch -n 2 examples/more/correct_and_smooth.py --partitioning-json-file parts/cora/cora.json
"""

import torch
import torch.nn.functional as F
from torch import nn

import common
import sar.function as fn


def spread(graph, start, alpha, steps, between):
    """``x = between((1 - alpha) * start + alpha * D^-1/2 A D^-1/2 x)``, as often as said."""
    scale = graph.in_degrees().clamp(min=1).float().pow(-0.5).unsqueeze(1)
    x = start
    with graph.local_scope():
        for _ in range(steps):
            graph.srcdata["x"] = x * scale
            graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "y"))
            x = between((1 - alpha) * start + alpha * scale * graph.dstdata["y"])
    return x


def correct(graph, predicted, nodes, alpha, steps):
    """Adds to the predictions what the errors on training nodes, spread over the graph, say is missing."""
    known = nodes.masks[0].unsqueeze(1)
    truth = F.one_hot(nodes.labels, nodes.n_classes).float()
    error = torch.where(known, truth - predicted, torch.zeros(()))
    usual = common.total(error.abs().sum()) / nodes.n_train
    spread_error = spread(graph, error, alpha, steps, lambda x: torch.where(known, error, x))
    size = spread_error.abs().sum(1, keepdim=True)
    scale = torch.where(size > 1e-9, usual / size.clamp(min=1e-9), torch.ones(()))
    return predicted + scale.clamp(max=1000) * spread_error


def smooth(graph, predicted, nodes, alpha, steps):
    """Spreads the predictions, with the truth in the place of those for training nodes."""
    truth = F.one_hot(nodes.labels, nodes.n_classes).float()
    start = torch.where(nodes.masks[0].unsqueeze(1), truth, predicted)
    return spread(graph, start, alpha, steps, lambda x: x.clamp(0, 1))


def main():
    p = common.parser(__doc__, "hidden-layer-dim")
    p.add_argument("--correction-alpha", type=float, default=0.8)
    p.add_argument("--smoothing-alpha", type=float, default=0.8)
    p.add_argument("--steps", type=int, default=30)
    p.set_defaults(hidden_layer_dim=64, weight_decay=5e-4, dropout=0.5, train_iters=60)
    args = common.complete(p.parse_args())
    common.start(args)
    progress = common.Progress(args)
    graph, nodes = common.load(args)
    torch.manual_seed(args.seed)
    drop, width = nn.Dropout(args.dropout), args.hidden_layer_dim
    model = nn.Sequential(
        *(drop, nn.Linear(nodes.features.shape[1], width), nn.ReLU(), drop, nn.Linear(width, nodes.n_classes))
    )
    logits = common.train(args, model, nodes, lambda: model(nodes.features), progress)
    alone = common.accuracies(logits, nodes.labels, nodes.masks)
    with torch.no_grad():
        predicted = correct(graph, logits.softmax(1), nodes, args.correction_alpha, args.steps)
        progress.show(common.accuracies(predicted, nodes.labels, nodes.masks), "corrected")
        predicted = smooth(graph, predicted, nodes, args.smoothing_alpha, args.steps)
        progress.show(common.accuracies(predicted, nodes.labels, nodes.masks), "smoothed ")
    progress.finish(test_accuracy_before=alone[2])


if __name__ == "__main__":
    main()
