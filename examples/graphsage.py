"""GraphSAGE with batch normalization on Cornell5, a dense friendship graph. One file to copy.

sar partition examples/data/cornell5.npz --parts 2 --out parts
sar launch -n 2 examples/graphsage.py parts/cornell5.json
"""

import sys

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import sar


class SAGE(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes):
        super().__init__()
        self.first = dgl.nn.SAGEConv(n_features, n_hidden, "mean")
        self.second = dgl.nn.SAGEConv(n_hidden, n_classes, "mean")
        self.norm = nn.BatchNorm1d(n_hidden)

    def forward(self, graph, x):
        x = F.relu(self.norm(self.first(graph, x)))
        return self.second(graph, x)


# Join the other workers, whoever has started them: sar launch, torchrun, mpirun, srun, ...
sar.initialize_comms()
rank = sar.rank()

# Load this worker's part: a graph that stands for the whole graph, with columns of this worker's own nodes.
graph = sar.load(sys.argv[1])
features = graph.ndata["features"].float()
labels = graph.ndata["labels"]
train, val, test = (graph.ndata[f"{m}_mask"] for m in ("train", "val", "test"))
n_train = graph.total(train)  # of all workers

torch.manual_seed(0)
model = SAGE(features.shape[1], 64, graph.num_classes)
sar.sync_params(model)
# Batch norm by the nodes of all workers; and what each layer becomes, sends and saves.
sar.prepare(model, graph)
if rank == 0:
    print(sar.describe(model))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

for epoch in range(1, 21):
    model.train()
    logits = model(graph, features)
    # The sum over this worker's nodes, divided by the training nodes of all workers.
    loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / n_train
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)  # adds up the gradients of all workers
    optimizer.step()

    if epoch % 5 == 0:
        model.eval()
        with torch.no_grad():
            correct = model(graph, features).argmax(1) == labels
        a, b, c = (100 * graph.total(correct[m]) / graph.total(m) for m in (train, val, test))
        loss = graph.total(loss)
        if rank == 0:
            print(f"epoch {epoch:3d}  loss {loss:.4f}  train {a:.1f} %  val {b:.1f} %  test {c:.1f} %")
