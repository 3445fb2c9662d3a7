"""R-GCN on a graph with several node and edge types. One file to copy. Authors and fields have no features: each
worker learns those of its own.

python examples/more/generate_hetero.py papers.npz
sar partition papers.npz --parts 2 --out parts
sar launch -n 2 examples/rgcn.py parts/papers.json
"""

import sys

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import sar


class RGCN(nn.Module):
    """Each layer adds up a linear map of the node itself and, for each relation, the mean of its neighbours."""

    def __init__(self, n_features, n_hidden, n_classes, types, relations):
        super().__init__()
        widths = [(n_features, n_hidden), (n_hidden, n_classes)]
        means = [{r: dgl.nn.GraphConv(i, o, norm="right") for r in relations} for i, o in widths]
        self.convs = nn.ModuleList([dgl.nn.HeteroGraphConv(layer) for layer in means])
        self.own = nn.ModuleList([nn.ModuleDict({t: nn.Linear(i, o) for t in types}) for i, o in widths])

    def forward(self, graph, x):
        for conv, own in zip(self.convs, self.own):
            x = {t: own[t](F.relu(x[t])) + mean for t, mean in conv(graph, x).items()}
        return x["paper"]


# Join the other workers, whoever has started them: sar launch, torchrun, mpirun, srun, ...
sar.initialize_comms()
rank = sar.rank()

# Load this worker's part: a graph that stands for the whole graph, with columns of this worker's own nodes.
graph = sar.load(sys.argv[1])
paper = graph.nodes["paper"].data
features, labels, train, test = (paper[name] for name in ("features", "labels", "train_mask", "test_mask"))
n_train, n_test = graph.total(train), graph.total(test)  # of all workers

torch.manual_seed(0)
model = RGCN(features.shape[1], 32, graph.num_classes, graph.ntypes, graph.etypes)
sar.sync_params(model)
# Features of this worker's own nodes stay with it: no other worker needs their gradients.
learned = {t: nn.Parameter(torch.randn(graph.num_nodes(t), features.shape[1])) for t in graph.ntypes if t != "paper"}
optimizer = torch.optim.Adam([*model.parameters(), *learned.values()], lr=0.01, weight_decay=5e-4)

for epoch in range(1, 61):
    logits = model(graph, {"paper": features, **learned})
    loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / n_train
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)  # adds up the gradients of all workers
    optimizer.step()

    if epoch % 20 == 0:
        correct = graph.total((logits.argmax(1) == labels)[test])
        loss = graph.total(loss)
        if rank == 0:
            print(f"epoch {epoch:2d}  loss {loss:.4f}  test {100 * correct / n_test:.1f} %")
