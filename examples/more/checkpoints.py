"""Training that goes on after a failure, with as many workers or others. Besides Cora's features, the model learns some
for each node, which stay with the worker that owns it.

sar partition examples/data/cora.npz --parts 2 --self-loops --out parts/2
sar launch -n 2 --max-restarts 3 examples/more/checkpoints.py parts/2/cora.json run

Kill a worker meanwhile. Or start it again later, with more epochs, or with other parts:

sar partition examples/data/cora.npz --parts 3 --self-loops --out parts/3
sar launch -n 3 examples/more/checkpoints.py parts/3/cora.json run 300
"""

import sys

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import sar


class GCN(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes):
        super().__init__()
        self.first = dgl.nn.GraphConv(n_features, n_hidden)
        self.second = dgl.nn.GraphConv(n_hidden, n_classes)

    def forward(self, graph, x):
        return self.second(graph, F.relu(self.first(graph, x)))


# Join the other workers, whoever has started them: sar launch, torchrun, mpirun, srun, ...
sar.initialize_comms()
rank, world_size = sar.rank(), sar.world_size()

description, directory, epochs = sys.argv[1], sys.argv[2], int((sys.argv[3:] or [100])[0])
graph = sar.load(description)
features, labels = graph.ndata["features"].float(), graph.ndata["labels"]
features = features / features.sum(1, keepdim=True).clamp(min=1)
train, test = graph.ndata["train_mask"], graph.ndata["test_mask"]
n_train, n_test = graph.total(train), graph.total(test)

torch.manual_seed(0)
model = GCN(features.shape[1] + 8, 16, graph.num_classes)
sar.sync_params(model)
# A module of parameters with a row for each of this worker's nodes. Checkpoints key the rows by original ids.
learned = nn.ParameterDict({"node": nn.Parameter(torch.zeros(graph.num_nodes(), 8))})
optimizer = torch.optim.Adam([*model.parameters(), *learned.parameters()], lr=0.01, weight_decay=5e-4)

models = {"model": model, "learned": learned}
with sar.Checkpointer(directory, models, optimizer, graph=graph, every=10) as checkpoints:
    begin = checkpoints.load()  # 0 where there is no checkpoint yet
    if rank == 0:
        print(f"{world_size} workers begin with epoch {begin + 1}")
    for epoch in range(begin + 1, epochs + 1):
        logits = model(graph, torch.cat([features, learned["node"]], 1))
        loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / n_train
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        if epoch % 10 == 0:
            correct = graph.total((logits.argmax(1) == labels)[test])
            loss = graph.total(loss)
            if rank == 0:
                print(f"epoch {epoch:3d}  loss {loss:.6f}  test {100 * correct / n_test:.1f} %")
        sar.log_epoch(epoch, epochs)  # on a terminal, a line with the time left
        checkpoints.step(epoch)  # every 10 epochs it copies the state, and a thread writes the copy
