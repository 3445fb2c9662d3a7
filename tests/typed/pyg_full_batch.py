"""Layers of PyG on the whole graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GAT

import sar

sar.initialize_comms()
data = sar.load("parts/cora.json", pyg=True)
x: Tensor = data.x
train: Tensor = data.train_mask
model = GAT(x.shape[1], 16, num_layers=2, out_channels=data.num_classes, heads=4)
sar.sync_params(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(100):
    logits: Tensor = model(x, data.edge_index)
    loss = F.cross_entropy(logits[train], data.y[train], reduction="sum") / data.total("train_mask")
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)
    optimizer.step()
    print(f"{epoch}: {data.total(loss):.4f}")
for one in sar.replaced():
    print(one.owner, one.name, one.why)
sar.pyg.restore()
