"""A graph attention network (GAT) of PyG on Cora, a citation graph. One file to copy: the layers are PyG's own.

sar partition examples/data/cora.npz --parts 2 --out parts
sar launch -n 2 examples/pyg_gat.py parts/cora.json
"""

import sys

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn

import sar


class GAT(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes):
        super().__init__()
        self.first = pyg.GATConv(n_features, n_hidden, heads=8, dropout=0.6)
        self.second = pyg.GATConv(8 * n_hidden, n_classes, heads=1, concat=False, dropout=0.6)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.first(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.second(x, edge_index)


# Join the other workers, whoever has started them: sar launch, torchrun, mpirun, srun, ...
sar.initialize_comms()
rank = sar.rank()

# Load this worker's part: rows of its own nodes, and an edge index that stands for that of the whole graph.
data = sar.load(sys.argv[1], pyg=True)
data.x = data.x.float() / data.x.float().sum(1, keepdim=True).clamp(min=1)
n_train = data.total("train_mask")  # of all workers

torch.manual_seed(0)
model = GAT(data.num_features, 8, data.num_classes)
sar.sync_params(model)
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
