"""A graph attention network (GAT) on Cora. One file to copy: the layer is DGL's own.

Attention weights are computed block by block, so memory does not grow with the number of edges times heads.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts
sar launch -n 2 examples/gat.py parts/cora.json
"""

import sys

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import sar


class GAT(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes):
        super().__init__()
        drop = {"feat_drop": 0.6, "attn_drop": 0.6}
        self.first = dgl.nn.GATConv(n_features, n_hidden, num_heads=8, activation=F.elu, **drop)
        self.second = dgl.nn.GATConv(8 * n_hidden, n_classes, num_heads=1, **drop)

    def forward(self, graph, x):
        x = self.first(graph, x).flatten(1)  # [nodes, heads * hidden]
        return self.second(graph, x).mean(1)


# Join the other workers, whoever has started them: sar launch, torchrun, mpirun, srun, ...
sar.initialize_comms()
rank = sar.rank()

# Load this worker's part: a graph that stands for the whole graph, with columns of this worker's own nodes.
graph = sar.load(sys.argv[1])
features = graph.ndata["features"].float()
features = features / features.sum(1, keepdim=True).clamp(min=1)
labels = graph.ndata["labels"]
train, val, test = (graph.ndata[f"{m}_mask"] for m in ("train", "val", "test"))
n_train = graph.total(train)  # of all workers

torch.manual_seed(0)
model = GAT(features.shape[1], 8, graph.num_classes)
sar.sync_params(model)
torch.manual_seed(rank)  # dropout differs between workers
optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)

for epoch in range(1, 101):
    model.train()
    logits = model(graph, features)
    # The sum over this worker's nodes, divided by the training nodes of all workers.
    loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / n_train
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)  # adds up the gradients of all workers
    optimizer.step()

    if epoch % 50 == 0:
        model.eval()
        with torch.no_grad():
            correct = model(graph, features).argmax(1) == labels
        a, b, c = (100 * graph.total(correct[m]) / graph.total(m) for m in (train, val, test))
        loss = graph.total(loss)
        if rank == 0:
            print(f"epoch {epoch:3d}  loss {loss:.4f}  train {a:.1f} %  val {b:.1f} %  test {c:.1f} %")
