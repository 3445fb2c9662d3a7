"""Link prediction as in PyG's example link_pred.py: a GCN, and new negative pairs in every epoch. One file to copy.

python examples/more/split_links.py examples/data/cora.npz --parts 2 --out parts
sar launch -n 2 examples/pyg_link_pred.py parts/links.json
"""

import sys

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn

import sar


class Net(nn.Module):
    def __init__(self, n_features, n_hidden, n_out):
        super().__init__()
        self.first = pyg.GCNConv(n_features, n_hidden)
        self.second = pyg.GCNConv(n_hidden, n_out)

    def encode(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


# Join the other workers, whoever has started them: sar launch, torchrun, mpirun, srun, ...
sar.initialize_comms()

# Load this worker's part: rows of its own nodes, and edges and labelled pairs that end at them.
data = sar.load(sys.argv[1], pyg=True)
x = data["node"].x / data["node"].x.sum(1, keepdim=True).clamp(min=1)
edges = {name: data["node", name, "node"].edge_index for name in ("train", "train_val")}
labelled = {name: data["node", f"{name}_label", "node"] for name in ("train", "val", "test")}

torch.manual_seed(0)
model = Net(x.shape[1], 128, 64)
sar.sync_params(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def train():
    z = model.encode(x, edges["train"])
    positive = labelled["train"].edge_index
    negative = sar.negative_sampling(edges["train"], num_neg_samples=positive.size(1))
    scores = torch.cat([model.decode(z, positive), model.decode(z, negative)])
    labels = torch.cat([torch.ones(positive.size(1)), torch.zeros(negative.size(1))])
    # The sum over this worker's pairs, divided by the pairs of all workers.
    loss = F.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / data.total(len(labels))
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)  # adds up the gradients of all workers
    optimizer.step()
    return data.total(loss)


@torch.no_grad()
def test(messages, pairs):
    scores = model.decode(model.encode(x, messages), pairs.edge_index).materialize()
    labels = pairs.edge_label.bool()
    return sar.link_metrics(scores[labels], scores[~labels])


for epoch in range(1, 101):
    loss = train()
    val, found = test(edges["train"], labelled["val"]), test(edges["train_val"], labelled["test"])
    if epoch % 50 == 0 and sar.rank() == 0:
        print(f"epoch {epoch:3d}  loss {loss:.4f}  val {100 * val['auc']:.1f} %  test {100 * found['auc']:.1f} %")
