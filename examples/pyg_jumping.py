"""GraphSAGE of PyG with jumping knowledge: the last layer sees the outputs of all of them. One file to copy.

sar partition examples/data/cora.npz --parts 2 --out parts
sar launch -n 2 examples/pyg_jumping.py parts/cora.json
"""

import sys

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn

import sar


class JumpingSAGE(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes, n_layers):
        super().__init__()
        widths = [n_features] + [n_hidden] * n_layers
        self.convs = nn.ModuleList([pyg.SAGEConv(i, o) for i, o in zip(widths[:-1], widths[1:])])
        self.jump = pyg.JumpingKnowledge("lstm", n_hidden, n_layers)
        self.out = nn.Linear(n_hidden, n_classes)

    def forward(self, x, edge_index):
        found = []
        for conv in self.convs:
            x = F.dropout(conv(x, edge_index).relu(), p=0.5, training=self.training)
            found.append(x)
        return self.out(self.jump(found))


# Join the other workers, whoever has started them: sar launch, torchrun, mpirun, srun, ...
sar.initialize_comms()
rank = sar.rank()

# Load this worker's part: rows of its own nodes, and an edge index that stands for that of the whole graph.
data = sar.load(sys.argv[1], pyg=True)
data.x = data.x.float()
n_train = data.total("train_mask")  # of all workers

torch.manual_seed(0)
model = JumpingSAGE(data.num_features, 64, data.num_classes, n_layers=3)
sar.sync_params(model)
sar.prepare(model, data)  # what each layer becomes, agreed once by all workers
if rank == 0:
    print(sar.describe(model))
torch.manual_seed(rank)  # dropout differs between workers
optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)

for epoch in range(1, 101):
    model.train()
    logits = model(data.x, data.edge_index)
    # The sum over this worker's nodes, divided by the training nodes of all workers.
    loss = F.cross_entropy(logits[data.train_mask], data.y[data.train_mask], reduction="sum") / n_train
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)  # adds up the gradients of all workers
    optimizer.step()

    if epoch % 50 == 0:
        model.eval()
        with torch.no_grad():
            correct = model(data.x, data.edge_index).argmax(1) == data.y
        accuracy = 100 * data.total(correct[data.test_mask]) / data.total("test_mask")
        loss = data.total(loss)
        if rank == 0:
            print(f"epoch {epoch:3d}  loss {loss:.4f}  test {accuracy:.1f} %")
