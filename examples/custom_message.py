"""A message function of your own, with parameters, where DGL is not installed. One file to copy.

A small network computes a gate for each edge. The function runs on blocks of edges, so the gates of all edges never
exist at once.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts
sar launch -n 2 examples/custom_message.py parts/cora.json
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import sar
import sar.function as fn


class GatedConv(nn.Module):
    """``out[i] = W_self x[i] + mean over in-edges (j -> i) of sigmoid(U [h[j], h[i]]) * h[j]``, ``h = W x``."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.own, self.linear, self.gate = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out), nn.Linear(2 * n_out, n_out)

    def message(self, edges):  # a method of a module: its parameters are found
        ends = torch.cat([edges.src["h"], edges.dst["h"]], dim=1)
        return {"m": torch.sigmoid(self.gate(ends)) * edges.src["h"]}

    def forward(self, graph, x):
        with graph.local_scope():
            graph.ndata["h"] = self.linear(x)
            graph.update_all(self.message, fn.mean("m", "out"))
            return self.own(x) + graph.dstdata["out"]


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
model = nn.ModuleList([GatedConv(features.shape[1], 32), GatedConv(32, graph.num_classes)])
sar.sync_params(model)
torch.manual_seed(rank)  # dropout differs between workers
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

for epoch in range(1, 101):
    hidden = F.dropout(F.relu(model[0](graph, F.dropout(features))))
    logits = model[1](graph, hidden)
    loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / n_train
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)  # adds up the gradients of all workers
    optimizer.step()

    if epoch % 50 == 0:
        with torch.no_grad():
            correct = model[1](graph, F.relu(model[0](graph, features))).argmax(1) == labels
        a, b, c = (100 * graph.total(correct[m]) / graph.total(m) for m in (train, val, test))
        if rank == 0:
            print(f"epoch {epoch:3d}  train {a:.1f} %  val {b:.1f} %  test {c:.1f} %")
