"""A heterogeneous model of PyG, HeteroConv with a layer for each relation. One file to copy. Authors and fields of
research have no features: they begin with the mean of their papers.

python examples/more/generate_hetero.py papers.npz
sar partition papers.npz --parts 2 --out parts
sar launch -n 2 examples/pyg_hetero.py parts/papers.json
"""

import sys

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn

import sar


class Papers(nn.Module):
    def __init__(self, n_hidden, n_classes, relations):
        super().__init__()
        self.convs = nn.ModuleList([pyg.HeteroConv({r: self.layer(r, n_hidden) for r in relations}) for _ in range(2)])
        self.out = pyg.Linear(n_hidden, n_classes)

    def layer(self, relation, n_hidden):
        same = relation[0] == relation[2]
        return pyg.GCNConv(-1, n_hidden) if same else pyg.SAGEConv((-1, -1), n_hidden)

    def forward(self, x, edges):
        for conv in self.convs:
            x = {kind: F.dropout(h.relu(), 0.3, self.training) for kind, h in conv(x, edges).items()}
        return self.out(x["paper"])


# Join the other workers, whoever has started them: sar launch, torchrun, mpirun, srun, ...
sar.initialize_comms()
rank = sar.rank()

# Load this worker's part: rows of its own nodes, and for each relation an edge index that stands for the whole one.
data = sar.load(sys.argv[1], pyg=True)
paper, mean = data["paper"], pyg.SimpleConv("mean")
for relation in [("paper", "written_by", "author"), ("paper", "about", "field")]:
    data[relation[2]].x = mean((paper.x, torch.zeros(data[relation[2]].num_nodes, 1)), data[relation].edge_index)
n_train = data.total("train_mask")  # of all workers

torch.manual_seed(0)
model = Papers(32, data.num_classes, data.edge_types)
with torch.no_grad():
    model(data.x_dict, data.edge_index_dict)  # widths of -1 are known now
sar.sync_params(model)
torch.manual_seed(rank)  # dropout differs between workers
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

for epoch in range(1, 101):
    model.train()
    logits = model(data.x_dict, data.edge_index_dict)
    # The sum over this worker's nodes, divided by the training nodes of all workers.
    loss = F.cross_entropy(logits[paper.train_mask], paper.y[paper.train_mask], reduction="sum") / n_train
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)  # adds up the gradients of all workers
    optimizer.step()

    if epoch % 50 == 0:
        model.eval()
        with torch.no_grad():
            correct = model(data.x_dict, data.edge_index_dict).argmax(1) == paper.y
        accuracy = 100 * data.total(correct[paper.test_mask]) / data.total("test_mask")
        loss = data.total(loss)
        if rank == 0:
            print(f"epoch {epoch:3d}  loss {loss:.4f}  test {accuracy:.1f} %")
