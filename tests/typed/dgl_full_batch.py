"""Layers of DGL on the whole graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from dgl.nn.pytorch import GraphConv
from torch import Tensor, nn

import sar


class GCN(nn.Module):
    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = GraphConv(width, hidden)
        self.norm = sar.DistributedBN1D(hidden)
        self.second = GraphConv(hidden, classes)

    def forward(self, graph: sar.GraphShardManager, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.first(graph, x)))
        logits: Tensor = self.second(graph, hidden)
        return logits


sar.initialize_comms()
graph = sar.load("parts/cora.json").add_self_loop()
features, labels, train = graph.ndata["features"].float(), graph.ndata["labels"], graph.ndata["train_mask"]
model = GCN(features.shape[1], 16, graph.num_classes)
sar.sync_params(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(100):
    logits: Tensor = model(graph, features)
    loss = F.cross_entropy(logits[train], labels[train], reduction="sum") / graph.total("train_mask")
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)
    optimizer.step()
    print(f"{epoch}: {graph.total(loss):.4f}")
correct = (model(graph, features).argmax(1) == labels)[graph.ndata["test_mask"]]
print(graph.total(correct) / graph.total("test_mask"), graph.num_nodes(), graph.in_degrees().max(), graph.in_degrees(0))
