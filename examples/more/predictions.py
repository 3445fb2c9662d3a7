"""Trains GraphSAGE on Cornell5 with a log of the run, and writes predictions at the nodes' original ids.

sar partition examples/data/cornell5.npz --parts 2 --out parts/cornell5
sar launch -n 2 examples/more/predictions.py --partitioning-json-file parts/cornell5/cornell5.json --out out
sar gather out/predictions.parquet -o predictions.parquet
sar report out/run -o report.html
sar evaluate examples/more/predictions.py:build --checkpoint out/model.safetensors --data parts/cornell5 \
    --model-args '{"n_features": 128, "n_classes": 2}'
"""

import os

import dgl
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import sar


class SAGE(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes):
        super().__init__()
        self.first = dgl.nn.SAGEConv(n_features, n_hidden, "mean")
        self.second = dgl.nn.SAGEConv(n_hidden, n_classes, "mean")
        # statistics of the whole graph, in evaluation mode too. With track_running_stats=True they would be those of
        # the epochs before, which suits other graphs
        self.norm = sar.DistributedBN1D(n_hidden)

    def forward(self, graph, x):
        x = F.relu(self.norm(self.first(graph, x)))
        return self.second(graph, x)


def build(n_features, n_classes, n_hidden=64):
    """What `sar infer` and `sar evaluate` call."""
    return SAGE(n_features, n_hidden, n_classes)


def predict(model, graph, features):
    """How they call it: with features as common.node_data prepares them."""
    x = features["_N/features"].float()
    return model(graph, x / x.sum(1, keepdim=True).clamp_(min=1))


def main():
    import common  # beside this file; `sar infer` needs the model alone

    p = common.parser(__doc__)
    p.set_defaults(train_iters=20, lr=0.003, every=10)
    p.add_argument("--out", required=True, help="folder for the model, predictions and the log")
    args = common.complete(p.parse_args())
    common.start(args)
    graph, nodes = common.load(args)
    torch.manual_seed(args.seed)
    model = build(nodes.features.shape[1], nodes.n_classes)
    sar.sync_params(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    os.makedirs(args.out, exist_ok=True)
    with sar.RunLog(os.path.join(args.out, "run"), lr=args.lr, epochs=args.train_iters) as log:
        for epoch in range(1, args.train_iters + 1):
            model.train()
            with log.phase("forward"):
                logits = model(graph, nodes.features)
                mask = nodes.masks[0]
                loss = F.cross_entropy(logits[mask], nodes.labels[mask], reduction="sum") / nodes.n_train
            with log.phase("backward"):
                optimizer.zero_grad()
                loss.backward()
            with log.phase("gradients"):
                sar.gather_grads(model)
            with log.phase("optimizer"):
                optimizer.step()
            with log.phase("evaluation"):
                found = common.accuracies(logits.detach(), nodes.labels, nodes.masks)
                total = common.total(loss.item())
            accuracy = dict(zip(("train", "val", "test"), found))
            log.epoch(epoch, args.train_iters, loss=total, accuracy=accuracy)
            if args.rank == 0 and epoch % args.every == 0:
                print(f"epoch {epoch:3d}  loss {total:.4f}  test accuracy {100 * found[2]:.1f} %")

    model.eval()
    with torch.no_grad():
        probabilities = model(graph, nodes.features).softmax(1)
    rows = {"prediction": probabilities.argmax(1), "probability": probabilities.max(1).values}
    sar.write_rows(os.path.join(args.out, "predictions.parquet"), rows, graph)
    if args.rank == 0:
        save_file(model.state_dict(), os.path.join(args.out, "model.safetensors"))


if __name__ == "__main__":
    main()
